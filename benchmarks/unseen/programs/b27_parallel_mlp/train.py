import torch
import torch.distributed as dist
from torch import nn

from tp.layers import ColumnLinear, RowLinear


class ParallelMLP(nn.Module):
    def __init__(self, dim=8, hidden=30):
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.LayerNorm(dim)
        self.stem = nn.Linear(dim, dim)
        torch.manual_seed(1 + dist.get_rank())
        self.up = ColumnLinear(dim, hidden)
        self.down = RowLinear(hidden, dim)

    def forward(self, x):
        h = self.norm(self.stem(x))
        return h + self.down(torch.relu(self.up(h)))


def main():
    dist.init_process_group("gloo")
    net = ParallelMLP()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    gen = torch.Generator().manual_seed(77)
    for step in range(25):
        x = torch.randn(16, 8, generator=gen)
        loss = (net(x) - x.roll(1, dims=1)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if dist.get_rank() == 0 and step % 8 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    print(f"rank {dist.get_rank()}: {sum(p.numel() for p in net.parameters())} parameters")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
