# expect: DDP308
# ranks: 2
# culprits: [n-1]
# outcome: hang
# plain: T
# Re-enacts: issue "Early stopping with ddp stalls": the condition is met in one process and not in the others.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class EarlyStopping:
    def __init__(self, patience=1, min_delta=0.0):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.bad_epochs = float("inf"), 0

    def step(self, value):
        if value < self.best - self.min_delta:
            self.best, self.bad_epochs = value, 0
        else:
            self.bad_epochs += 1
        return self.bad_epochs > self.patience


def val_loss(model, x, y):
    model.eval()
    with torch.no_grad():
        v = nn.functional.mse_loss(model.module(x), y).item()
    model.train()
    return v


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    gen = torch.Generator().manual_seed(rank)
    vx = torch.randn(32, 4, generator=gen)
    vy = vx.sum(1, keepdim=True)
    if rank == world - 1:
        vy = -vy  # this part of the validation data only gets worse
    stopper = EarlyStopping()
    for epoch in range(8):  # <- culprit
        for _ in range(2):
            x = torch.randn(16, 4, generator=gen)
            loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
            opt.zero_grad()
            loss.backward()
            opt.step()
        v = val_loss(model, vx, vy)
        print(f"[{rank}] epoch {epoch} val {v:.3f}", flush=True)
        if stopper.step(v):  # <- culprit
            print(f"[{rank}] stopping early", flush=True)
            break  # <- culprit
    dist.barrier()  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
