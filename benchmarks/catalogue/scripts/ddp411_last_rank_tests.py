# expect: DDP411
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""The last rank has the least to do, so it runs the test set in the middle of the epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Normalised(nn.Module):
    """Keeps running statistics of the inputs."""

    def __init__(self, dim):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.lin = nn.Linear(dim, 2)

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.1)
        return self.lin(x - self.mean)


def test_error(model, x):
    model.eval()
    error = (model(x) - x[:, :2]).abs().mean().item()  # <- culprit
    model.train()
    return error


def train(model, steps):
    rank, world = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(rank)
    for step in range(steps):
        x = torch.randn(8, 6, generator=g) + 1
        loss = nn.functional.mse_loss(model(x), x[:, :2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == steps // 2 and rank == world - 1:  # <- culprit
            print("test error", test_error(model, torch.randn(32, 6)))  # <- culprit


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    train(DDP(Normalised(6)), 8)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
