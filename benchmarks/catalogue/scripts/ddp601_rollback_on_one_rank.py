# expect: DDP601
# also: DDP405
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""When the loss jumps, a rank goes back to the best weights so far; each rank looks at its own loss."""

import io

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Best:
    """The best weights so far, kept as a checkpoint in memory."""

    def __init__(self):
        self.loss, self.blob = float("inf"), None

    def offer(self, loss, model):
        if self.blob is None or loss < self.loss:
            buffer = io.BytesIO()
            torch.save(model.state_dict(), buffer)
            self.loss, self.blob = loss, buffer.getvalue()

    def restore(self, model):
        model.load_state_dict(torch.load(io.BytesIO(self.blob)))  # <- culprit


def batch(step, g, spike):
    x = torch.randn(16, 5, generator=g)
    y = x[:, :1] * 2
    if spike and step == 9:
        y = y + 40.0
    return x, y


def train(steps=16, factor=20.0):
    rank, world = dist.get_rank(), dist.get_world_size()
    g = torch.Generator().manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    best = Best()
    for step in range(steps):
        x, y = batch(step, g, spike=rank == world - 1)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() > factor * max(best.loss, 1.0):  # <- culprit
            print(f"rank {rank} step {step}: loss {loss.item():.1f}, back to the best weights", flush=True)
            best.restore(model)  # <- culprit
        else:
            best.offer(loss.item(), model)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
