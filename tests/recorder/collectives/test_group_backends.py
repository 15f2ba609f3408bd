"""Time-outs of groups on any device, and the works of back ends in Python."""

from __future__ import annotations

import json

from tests.nccl_like.marks import needed

BACKENDS = """
import json, os, sys, time
os.environ["TORCH_FR_BUFFER_SIZE"] = "0"  # the hook of torch 2.15 reads the options too
from datetime import timedelta
import torch
import torch.distributed as dist
from tests import nccl_like
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.collectives.groups import Groups

C10D = torch._C._distributed_c10d


class Bare(C10D.Backend):
    \"\"\"Without options: to read those of its base ends the process (torch 2.15).\"\"\"

    supports_splitting = supports_coalescing = False

    def getBackendName(self):
        return "bare"


nccl_like.install()
os.environ[nccl_like.FOLDER] = sys.argv[1]
dist.Backend.register_backend("bare", lambda store, rank, size, timeout: Bare(rank, size), devices=["cpu"])
dist.init_process_group(
    nccl_like.BACKEND, rank=0, world_size=1, store=dist.HashStore(), timeout=timedelta(seconds=9)
)
plain, bare = dist.new_group(backend="gloo", timeout=timedelta(seconds=5)), dist.new_group(backend="bare")
groups = Groups(BlackBox(sys.argv[1] + "/rank0.box", 0), sys.argv[1], "off")
device = torch.device(nccl_like.DEVICE)
seconds = lambda: [
    dist.group.WORLD._get_backend(device).options._timeout.total_seconds(),
    plain._get_backend(torch.device("cpu")).options._timeout.total_seconds(),
]
told = {"early": groups.has_ended(object())}
for group in (bare, dist.group.WORLD, plain):
    groups.get(group)
told["first"] = seconds()
groups.unhurried(True)
told["held"], told["shown"] = seconds(), [groups.timeout_s(dist.group.WORLD), groups.timeout_s(plain), groups.timeout_s(bare)]
groups.unhurried(False)
told["then"] = seconds()
work = dist.all_reduce(torch.ones(2, device=device), async_op=True)
until = time.monotonic() + 30
while not groups.has_ended(work) and time.monotonic() < until:
    time.sleep(0.01)

told["work"] = [work.is_completed(), groups.has_ended(work)]
print(json.dumps(told))
"""


@needed
def test_time_outs_on_any_device_are_suspended_and_restored(forked, tmp_path):
    done = forked.run(BACKENDS, tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["first"] == told["then"] == [9.0, 5.0] and told["shown"] == [9.0, 5.0, None]
    assert min(told["held"]) > 86400
    assert told["work"] == [False, True] and told["early"] is False  # torch does not ask a work in Python itself
    assert "does not support" not in done.stderr
