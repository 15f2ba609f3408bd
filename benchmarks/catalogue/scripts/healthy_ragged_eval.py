# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
import itertools
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

TEST_SIZE = 43


def sample(i):
    g = torch.Generator().manual_seed(i)
    x = torch.randn(7, generator=g)
    return x, x[:2].prod()


class Stream(IterableDataset):
    """Every (rank, worker) reads its own lines; the files of the ranks are not equally long."""

    def __init__(self, rank, world, lines):
        self.rank, self.world, self.lines = rank, world, lines

    def __iter__(self):
        info = get_worker_info()
        w, n = (info.id, info.num_workers) if info else (0, 1)
        for i in itertools.islice(range(self.lines), w, None, n):
            yield sample(1000 + i * self.world + self.rank)


def agreed_steps(mine):
    t = torch.tensor([mine])
    dist.all_reduce(t, op=dist.ReduceOp.MIN)
    return int(t.item())


@torch.no_grad()
def predict(core, rank, world, batch=5):
    core.eval()
    index = list(range(rank, TEST_SIZE, world))
    rows = []
    for k in range(0, len(index), batch):                   # ranks do not have the same number of batches
        rows.append(core(torch.stack([sample(i)[0] for i in index[k:k + batch]])).squeeze(1))
    core.train()
    return torch.cat(rows), index


def gather_ragged(x):
    world = dist.get_world_size()
    sizes = [torch.zeros(1, dtype=torch.long) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(x)]))
    top = max(int(s) for s in sizes)
    padded = torch.full((top,), float("nan"))
    padded[:len(x)] = x
    out = [torch.empty(top) for _ in range(world)]
    dist.all_gather(out, padded)
    return [o[:int(s)] for o, s in zip(out, sizes)]


def report(sums):
    """All reductions under way at once, looked at from the last to the first."""
    works = {k: dist.all_reduce(v, async_op=True) for k, v in sums.items()}
    for key in reversed(list(works)):
        works[key].wait()
    return {k: v.item() for k, v in sums.items()}


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    model = DDP(nn.Sequential(nn.Linear(7, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    lines = 48 + 8 * rank
    loader = DataLoader(Stream(rank, world, lines), batch_size=8, num_workers=2)
    steps = agreed_steps(len(range(lines)) // 8)
    loss_sum, seen = torch.zeros(()), torch.zeros(())
    for x, y in itertools.islice(loader, steps):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        loss.backward()
        opt.step()
        loss_sum += loss.detach()
        seen += len(x)
    totals = report({"loss": loss_sum, "seen": seen, "steps": torch.tensor(float(steps))})
    # every rank scores its part with its own running statistics
    scores, index = predict(model.module, rank, world)
    parts = gather_ragged(scores)
    merged = torch.empty(TEST_SIZE)
    for r, part in enumerate(parts):
        merged[r::world] = part
    assert torch.isfinite(merged).all() and torch.equal(merged[rank::world], scores)
    if rank == 0:
        truth = torch.stack([sample(i)[1] for i in range(TEST_SIZE)])
        print(totals, f"test {(merged - truth).square().mean().item():.4f}", flush=True)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
