"""``python -m ddpnb``."""

import sys

from ddpnb.cli import main

sys.exit(main())
