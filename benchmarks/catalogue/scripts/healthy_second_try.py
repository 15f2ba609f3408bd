# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""Stochastic depth with a common coin, unreliable storage with a common retry."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class StorageBusy(RuntimeError):
    pass


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU(), nn.Dropout(0.1))

    def forward(self, x):
        return x + self.inner(x)


class DeepNet(nn.Module):
    def __init__(self, dim=12, depth=4, keep=0.6):
        super().__init__()
        self.first = nn.Linear(5, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.last = nn.Linear(dim, 1)
        self.keep = keep
        self.coin = torch.Generator().manual_seed(123)      # the same on every rank

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            if not self.training or torch.rand((), generator=self.coin) < self.keep:
                x = block(x)
        return self.last(x)


class Storage:
    """Busy for everybody at the third batch, and for single readers now and then."""

    def __init__(self, rank):
        self.rank, self.calls = rank, 0
        self.gen = torch.Generator().manual_seed(60 + rank)

    def read(self, step, attempt):
        self.calls += 1
        if attempt == 0 and (step == 2 or step % 4 == 1 and self.rank == (step // 4) % 2):
            raise StorageBusy(f"batch {step}")
        x = torch.randn(10, 5, generator=self.gen)
        return x, x.abs().sum(1, keepdim=True)


def anybody(flag):
    t = torch.tensor(float(flag))
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return t.item() > 0


def fetch(storage, step, tries=3):
    """A batch on all ranks or another attempt on all ranks."""
    for attempt in range(tries):
        try:
            batch, failed = storage.read(step, attempt), False
        except StorageBusy:
            batch, failed = None, True
        if not anybody(failed):
            return batch
    raise StorageBusy(f"batch {step} after {tries} attempts")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(DeepNet(), find_unused_parameters=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    torch.manual_seed(10 + rank)                            # dropout
    storage = Storage(rank)
    for step in range(8):
        x, y = fetch(storage, step)
        opt.zero_grad()
        loss = nn.functional.smooth_l1_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        opt.step()
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    every = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(every, flat)
    assert all(torch.equal(e, flat) for e in every)
    print(f"rank {rank}: loss {loss.item():.4f}, {storage.calls} reads", flush=True)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
