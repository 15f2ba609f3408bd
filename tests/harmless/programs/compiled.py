"""torch.compile with a wrapped model: what Dynamo says that it has compiled is the user's, and only that."""

import time

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel


def say(*words):
    print(f"rank {dist.get_rank()}", *words, flush=True)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def outside(**options):
    return torch.compile(DistributedDataParallel(model()), **options)


def inside(**options):
    return DistributedDataParallel(torch.compile(model(), **options))


def train(made, name):
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    for step in range(5):
        optimizer.zero_grad()
        loss = made(torch.ones(2 + step % 2, 8) * step).sum()
        loss.backward()
        optimizer.step()
        say(name, step, loss.item().hex())


@torch.compile(backend="eager")
def reduced(tensor):
    dist.all_reduce(tensor := tensor * 2)
    return tensor + 1


dist.init_process_group("gloo")
for make, options in ((outside, {"backend": "aot_eager"}), (outside, {"backend": "eager", "dynamic": True}), (inside, {"backend": "eager"})):
    torch._dynamo.reset()
    counters.clear()
    name = f"{make.__name__} {options}"
    train(make(**options), name)
    for kind in ("frames", "stats", "graph_break"):
        for key, count in sorted(counters[kind].items()):
            say(name, kind, key.splitlines()[0], count)
say(reduced(torch.ones(2)).tolist(), dict(counters["stats"]))
time.sleep(0.5)  # gloo's threads let go of the last tensors: an interpreter that ends meanwhile is aborted
dist.destroy_process_group()
