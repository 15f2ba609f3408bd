# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
import datetime
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

LONG = datetime.timedelta(minutes=10)


class Grid:
    """Ranks in rows and columns; everybody creates all the groups, in the same order, and keeps two."""
    def __init__(self, rows, cols):
        rank = dist.get_rank()
        self.r, self.c = divmod(rank, cols)
        for i in range(rows):
            g = dist.new_group([i * cols + j for j in range(cols)], timeout=LONG)
            if i == self.r:
                self.row = g
        for j in range(cols):
            g = dist.new_group([i * cols + j for i in range(rows)], timeout=LONG)
            if j == self.c:
                self.col = g


def summa_step(grid, rows, cols):
    """Sum over the row first, then over the column: the sum over the world."""
    t = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(t, group=grid.row)
    row_sum = t.clone()
    dist.all_reduce(t, group=grid.col)
    assert t.item() == sum(range(1, rows * cols + 1))
    assert row_sum.item() == sum(grid.r * cols + j + 1 for j in range(cols))


def pairs(rank):
    """Only the two members create their group."""
    base = rank // 2 * 2
    g = dist.new_group([base, base + 1], use_local_synchronization=True, timeout=LONG)
    box = torch.tensor([rank if rank == base else -1])
    dist.broadcast(box, src=base, group=g)
    assert box.item() == base
    return g


def leaders(rank, world):
    """A group of the even ranks; the odd ranks do not even know of it."""
    if rank % 2:
        return
    evens = list(range(0, world, 2))
    g = dist.new_group(evens, use_local_synchronization=True, timeout=LONG)
    t = torch.ones(1)
    dist.all_reduce(t, group=g)
    assert t.item() == len(evens)
    if rank == 0:
        time.sleep(0.2)                      # the leader writes a summary, the odd ranks are ahead


def scratch_groups(rank, world):
    """Groups of a moment: made, used, destroyed."""
    for k in range(4):
        members = sorted({k % world, (k + 1) % world})
        g = dist.new_group(members)
        if rank in members:
            got = [torch.zeros(2) for _ in members]
            dist.all_gather(got, torch.full((2,), float(rank)), group=g)
            assert [int(t[0]) for t in got] == members
            dist.destroy_process_group(g)


def main():
    dist.init_process_group("gloo", timeout=LONG)
    rank, world = dist.get_rank(), dist.get_world_size()
    rows, cols = (2, 2) if world == 4 else (1, world)
    grid = Grid(rows, cols)
    for _ in range(3):
        summa_step(grid, rows, cols)
    pair = pairs(rank)
    scratch_groups(rank, world)
    # unequal amounts of work in the pairs: (0, 1) talk once, (2, 3) three times
    for _ in range(1 + rank // 2 * 2):
        dist.barrier(group=pair)
    mesh = init_device_mesh("cpu", (rows, cols), mesh_dim_names=("dp", "tp"))
    t = torch.tensor([1.0 + rank])
    dist.all_reduce(t, op=dist.ReduceOp.MAX, group=mesh["tp"].get_group())
    assert t.item() == 1 + grid.r * cols + cols - 1
    leaders(rank, world)  # last: torch counts the groups of each rank, and names later ones by the count
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
