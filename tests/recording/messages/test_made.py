"""Error texts that torch itself makes here: each is still recognised. ``make test-torch`` does so with other versions."""

from __future__ import annotations

import json
import os

import pytest
import torch

#: what raises, and the finding
ALONE = {
    "dist.all_reduce(torch.ones(1))": "DDP102",
    "dist.init_process_group('gloo')": "DDP101",
    "store = dist.TCPStore('127.0.0.1', 0, 1, True); dist.TCPStore('127.0.0.1', store.port, 1, True)": "DDP105",
    "init(); init()": "DDP105",
    "init(); model = DDP(Unused()); [model(torch.ones(1, 2)).sum().backward() for _ in range(2)]": "DDP401",
    "init(); model = DDP(Again(), find_unused_parameters=True); model(torch.ones(1, 2, requires_grad=True)).sum().backward()": "DDP415",
    "init(); DDP(nn.ReLU())": "DDP401",
    "init(); nn.Linear(1, 1).load_state_dict(DDP(nn.Linear(1, 1)).state_dict())": "DDP602",
    "nn.Linear(1, 1).load_state_dict(nn.Linear(2, 1).state_dict())": "DDP602",
    "init(); DDP(nn.Linear(1, 1), device_ids=[0])": "DDP204",
    "init(); dist.gather(torch.ones(1), None, dst=0)": "DDP305",
    "init(); dist.all_gather([torch.ones(2)], torch.ones(3))": "DDP303",
    "init(); dist.new_group([5])": "DDP108",
    "nn.Linear(2, 2, device='meta')(torch.ones(1, 2))": "DDP202",
    "torch.utils.data.DistributedSampler([1, 2])": "DDP102",
    "torch.empty(1 << 50)": "DDP205",
    "torch.load(truncated())": "DDP603",
    "list(torch.utils.data.DataLoader(Ends(), num_workers=1))": "DDP505",
}
#: with a time-out, of one rank
LATE = {
    "dist.TCPStore('127.0.0.1', 9, 2, False, timeout=second)": "DDP104",
    "dist.TCPStore('127.0.0.1', 0, 2, True, timeout=second)": "DDP102",
    "dist.TCPStore('127.0.0.1', 0, 1, True, timeout=second).get('x')": "DDP313",
}
#: of two ranks: what both call, with the environment, and the finding of one of them at least
TOGETHER = {
    "dist.monitored_barrier(timeout=second) if rank == 0 else time.sleep(2)": ({}, "DDP301"),
    "dist.all_reduce(torch.ones(1)) if rank == 0 else time.sleep(4)": ({}, "DDP301"),
    "DDP(nn.Linear(2, 2 + rank))": ({}, "DDP403"),
    "dist.all_reduce(torch.ones(1 + rank))": ({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, "DDP303"),
    "dist.all_reduce(torch.ones(1)) if rank else dist.broadcast(torch.ones(1), 0)": (
        {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, "DDP302",
    ),
}  # fmt: skip
#: of a wheel with CUDA, where there is no driver
WITHOUT_DRIVER = {
    "torch.ones(1).cuda()": "DDP208",
    "torch.cuda.set_device(0)": "DDP208",
    "dist.init_process_group('nccl', init_method=file(), rank=0, world_size=1); dist.all_reduce(torch.ones(1))": "DDP106",
}

PROGRAM = """
import json, os, sys, tempfile, time, traceback, warnings
from datetime import timedelta
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from ddpnb.recording.messages.explain import explain

warnings.simplefilter("ignore")
second = timedelta(seconds=1)
folder = tempfile.mkdtemp()

def file():
    return f"file://{folder}/store"

def init():
    dist.init_process_group("gloo", init_method=file(), rank=0, world_size=1)

class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.used(x)

class Again(Unused):
    def forward(self, x):
        return checkpoint(self.used, checkpoint(self.used, x, use_reentrant=True), use_reentrant=True)

class Ends(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, item):
        os._exit(1)

def truncated():
    torch.save({"a": torch.ones(1000)}, f"{folder}/a.pt")
    os.truncate(f"{folder}/a.pt", 2000)
    return f"{folder}/a.pt"

def attempt(statement, **names):
    try:
        exec(statement, {**globals(), **names})
    except Exception as error:
        found = explain(str(error), type(error).__name__, traceback=traceback.format_exc())
        return [found.code if found else "", f"{type(error).__name__}: {error}"[:300]]
    return ["", "nothing was raised"]

def in_a_child(function):
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writes, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(writes)
    return child, reads

def of_two(rank, statement):
    dist.set_debug_level_from_env()
    store = dist.FileStore(f"{folder}/two", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=2))
    found = attempt(statement, rank=rank)
    time.sleep(0.5)  # the other one fails by itself
    return found

statements, ranks = json.loads(sys.argv[1]), int(sys.argv[2])
found = {}
for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
    os.environ.pop(name, None)
for statement in statements:
    folder = tempfile.mkdtemp()
    made = [in_a_child(lambda: of_two(rank, statement) if ranks == 2 else attempt(statement)) for rank in range(ranks)]
    said = [(os.waitpid(child, 0), os.read(reads, 100_000), os.close(reads))[1] for child, reads in made]
    found[statement] = [json.loads(one or '["", "the process ended"]') for one in said]
print("FOUND" + json.dumps(found))
"""


def made(forked, statements, ranks=1, **environment):
    done = forked.run(PROGRAM, json.dumps(list(statements)), ranks, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rpartition("FOUND")[2])


def unknown(found, expected):
    """What is not recognised any more, with its texts."""
    return [f"{one}: not {code}: {found[one]}" for one, code in expected.items() if code not in dict(found[one])]


def test_of_one_process(forked):
    few = dict(list(ALONE.items())[:3])
    assert not unknown(made(forked, few), few)


@pytest.mark.full
def test_all_of_one_process(forked):
    assert not unknown(made(forked, ALONE), ALONE)


@pytest.mark.full
def test_time_outs(forked):
    assert not unknown(made(forked, LATE), LATE)


@pytest.mark.full
@pytest.mark.parametrize("statement", TOGETHER)
def test_of_two_ranks(forked, statement):
    environment, code = TOGETHER[statement]
    assert not unknown(made(forked, [statement], 2, **environment), {statement: code})


@pytest.mark.full
def test_of_cuda_without_a_driver(forked):
    if not torch.version.cuda or os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg"):
        pytest.skip("needs a torch with CUDA, and a machine without a driver")
    assert not unknown(made(forked, WITHOUT_DRIVER), WITHOUT_DRIVER)
