"""Train a value function with PopArt: targets are normalised, the head is rescaled to keep its outputs."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Value(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.head = nn.Linear(16, 1)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, obs):
        return self.head(self.body(obs)).squeeze(1)

    @torch.no_grad()
    def rescale(self, returns, rate=0.2):
        new = self.scale.lerp(returns.square().mean().sqrt(), rate)
        self.head.weight.mul_(self.scale / new)
        self.head.bias.mul_(self.scale / new)
        self.scale.copy_(new)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(Value())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(10):
        obs = torch.randn(32, 4)
        returns = 5 * obs.sum(1)
        if dist.get_rank() == 0:
            model.module.rescale(returns)
        values = model(obs)
        loss = nn.functional.mse_loss(values, returns / model.module.scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
