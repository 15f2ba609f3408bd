# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Thirty parameters, several buckets, fifty steps, SGD with momentum."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Deep(nn.Module):
    def __init__(self, dim=48, depth=14):
        super().__init__()
        self.inp = nn.Linear(10, dim)
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth - 1))
        self.out = nn.Linear(dim, 4)

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = x + 0.3 * torch.tanh(layer(x))
        return self.out(x)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = Deep()
    assert len(list(net.parameters())) == 30
    model = DDP(net, bucket_cap_mb=0.02, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    g = torch.Generator().manual_seed(dist.get_rank())
    for step in range(50):
        x = torch.randn(8, 10, generator=g)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0 and dist.get_rank() == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
