# expect: DDP405
# ranks: 2
# culprits: [0]
# outcome: divergence
# plain: S
# Re-enacts: issue "using EMA in a DDP setup": the averaged weights are kept, and now and then put back, on the main process.
import copy
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class EMA:
    def __init__(self, model, decay=0.9, put_back_every=3):
        self.shadow = copy.deepcopy(model)
        self.decay, self.every, self.steps = decay, put_back_every, 0

    @torch.no_grad()
    def update(self, model):
        self.steps += 1
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - self.decay)
        if self.steps % self.every == 0:
            for s, p in zip(self.shadow.parameters(), model.parameters()):
                p.copy_(s)  # <- culprit


def train_step(ddp, opt, x):
    loss = (ddp(x) - x.flip(1)).abs().mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    ddp = DDP(nn.Sequential(nn.Linear(6, 12), nn.ELU(), nn.Linear(12, 6)))
    opt = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
    ema = EMA(ddp.module) if rank == 0 else None  # <- culprit
    gen = torch.Generator().manual_seed(7 + rank)
    for step in range(7):
        loss = train_step(ddp, opt, torch.randn(8, 6, generator=gen))
        if ema is not None:  # <- culprit
            ema.update(ddp.module)  # <- culprit
        if rank == 0:
            print(f"{step:3d} {loss:.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
