"""Functions that torch.compile compiles, with collectives in their graphs: broken on one rank, or healthy."""
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce


def mean(x):
    return all_reduce(x.mean(0), "sum", dist.group.WORLD)


def guard(rank):
    @torch.compile(backend="eager")  # culprit: guard # waiting: guard
    def normalise(x, centre):
        if centre:
            x = x - mean(x)
        return x / all_reduce(x.abs().amax(0), "max", dist.group.WORLD)

    for step in range(6):
        normalise(torch.rand(4, 2), centre=step == 4 and rank == 1)


def graph_break(rank):
    @torch.compile(backend="eager")
    def normalise(x):
        x = x - mean(x)
        if x.max() > 4:
            print("outlier")  # culprit: graph_break
            x = x / all_reduce(x.abs().amax(0), "max", dist.group.WORLD)
        return x

    for step in range(6):
        x = torch.rand(4, 2)
        x[0, 0] = 90 if step == 3 and rank == 1 else 0
        dist.all_reduce(normalise(x).sum())  # waiting: graph_break


def other_size(rank):
    @torch.compile(backend="eager")  # culprit: other_size # waiting: other_size
    def total(x):
        return all_reduce(x * 2, "sum", dist.group.WORLD)

    for step in range(6):
        total(torch.ones(6 if step == 3 and rank == 1 else 4))


# -- healthy


def alike(rank):
    @torch.compile(backend="eager", dynamic=False)
    def normalise(x):
        if len(x) > 4:
            x = x - mean(x)
        return x / all_reduce(x.abs().amax(0), "max", dist.group.WORLD)

    for size in (4, 6, 4, 8, 6):
        normalise(torch.rand(size, 2))


def slow(rank):
    def backend(graph, _):
        if rank == 1:
            subprocess.run(["sleep", "6"], check=True)  # longer than the patience of the test
        return graph.forward

    @torch.compile(backend=backend)
    def total(x):
        return x.relu().sum()

    for _ in range(3):
        dist.all_reduce(total(torch.ones(4)))


def own_sizes(rank):
    @torch.compile(backend="eager")
    def total(x):
        return x.relu().sum()

    for step in range(5):
        dist.all_reduce(total(torch.ones(4 + rank * step)))


def gives_up(rank):
    @torch.compile(backend="eager", dynamic=False)
    def total(x):
        return all_reduce(x.sum(), "sum", dist.group.WORLD)

    torch._dynamo.config.recompile_limit = 2
    for step in range(5):
        total(torch.ones(4 + step * (rank == 1)))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
    dist.destroy_process_group()
