import torch
import torch.distributed as dist
from torch import nn

from tp.layers import ColumnLinear, RowLinear


class Block(nn.Module):
    def __init__(self, dim, hidden, sharded):
        super().__init__()
        up, down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.norm = nn.LayerNorm(dim)
        self.up = ColumnLinear(up) if sharded else up
        self.down = RowLinear(down) if sharded else down

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, dim=16, hidden=41, depth=2, sharded=True):
        super().__init__()
        torch.manual_seed(6)
        self.blocks = nn.Sequential(*(Block(dim, hidden, sharded) for _ in range(depth)))
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        return self.head(self.blocks(x))


def fit(model, steps):
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(0)
    out = []
    for _ in range(steps):
        x = torch.randn(24, 16, generator=g)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        out.append(loss.item())
    return torch.tensor(out)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = Model()
    print(f"rank {rank} holds {sum(p.numel() for p in model.parameters())} parameters", flush=True)
    losses = fit(model, 15)
    if rank == dist.get_world_size() - 1:
        reference = fit(Model(sharded=False), 15)
        gap = (losses - reference).abs().max().item()
        print(f"last loss {losses[-1]:.4f}, differs by {gap:.1e} from the unsharded model", flush=True)
        assert gap < 1e-4
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
