"""``python -m ddpnb.rules.catalogue > docs/findings.md``: writes the reference."""

import sys

from ddpnb.rules.catalogue.reference import reference

sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
sys.stdout.write(reference())
