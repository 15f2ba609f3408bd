# expect: DDP107
# ranks: 2 4
# culprits: 1
# outcome: any
# plain: S
import os
import platform
import sys
import typing

import torch
import torch.distributed as dist


class Version(typing.NamedTuple):
    major: int
    minor: int
    micro: int
    releaselevel: str
    serial: int


def other_environment():
    """Rank 1 was started from a conda environment with an older interpreter."""
    sys.version_info = Version(3, 10, 4, "final", 0)
    sys.version = "3.10.4 | packaged by conda-forge | (main, Mar 24 2022) [GCC 10.3.0]"
    sys.hexversion = 0x030A04F0
    platform.python_version = lambda: "3.10.4"


if os.environ["RANK"] == "1":
    other_environment()

dist.init_process_group("gloo")
print(dist.get_rank(), platform.python_version())
total = torch.zeros(3)
for _ in range(5):
    part = torch.rand(3)
    dist.all_reduce(part)
    total += part
print(total)
dist.destroy_process_group()
