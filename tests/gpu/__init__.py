"""What has a path of its own on CUDA devices. ``make gpu`` runs these tests; see docs/gpu.md.

The device is named here alone, so that their other logic can be tried on a machine without one.
"""

from __future__ import annotations

DEVICE = "cuda:0"
KIND = DEVICE.partition(":")[0]
ONE = {"backend": "gloo", "devices": [0], "quiet": True}  # of launch(): the ranks share one GPU; NCCL needs one each
