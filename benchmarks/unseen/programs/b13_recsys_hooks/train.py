import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from comm import setup_comm


class DLRM(nn.Module):
    def __init__(self, users=50, items=80, dim=8):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.item = nn.Embedding(items, dim)
        self.top = nn.Sequential(nn.Linear(2 * dim, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, u, i):
        return self.top(torch.cat([self.user(u), self.item(i)], dim=-1)).squeeze(-1)


def interactions(rank, steps, batch=64):
    gen = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        u = torch.randint(0, 50, (batch,), generator=gen)
        i = torch.randint(0, 80, (batch,), generator=gen)
        yield u, i, ((u + i) % 3 == 0).float()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(64)
    model = setup_comm(DistributedDataParallel(DLRM()))
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for step, (u, i, y) in enumerate(interactions(dist.get_rank(), 15)):
        opt.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(u, i), y)
        loss.backward()
        opt.step()
        if step % 5 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
