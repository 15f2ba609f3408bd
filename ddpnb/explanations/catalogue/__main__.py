"""``python -m ddpnb.explanations.catalogue > docs/findings.md``: writes the reference."""

import sys

from ddpnb.explanations.catalogue.reference import reference

sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
sys.stdout.write(reference())
