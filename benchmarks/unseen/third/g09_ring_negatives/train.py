"""Two-tower retrieval: negatives from the other ranks arrive over a ring."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ring import rotate_banks

STEPS, DIM = 16, 12


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Linear(24, DIM))
        self.doc = nn.Sequential(nn.Linear(30, 24), nn.ReLU(), nn.Linear(24, DIM))

    def forward(self, q, d):
        return F.normalize(self.query(q), dim=1), F.normalize(self.doc(d), dim=1)


def pairs(rank, step, n=12):
    g = torch.Generator().manual_seed(step * 64 + rank)
    topic = torch.randn(n, 20, generator=g)
    mix = torch.randn(20, 30, generator=torch.Generator().manual_seed(1))
    return topic, topic @ mix / 5 + 0.1 * torch.randn(n, 30, generator=g)


def hardest(documents, queries):
    """The bank that a rank offers: as many documents as are confusable there, never none."""
    similarity = queries @ documents.T - 2 * torch.eye(len(queries))
    confusion = similarity.max(0).values
    keep = confusion > confusion.mean()
    keep[0] = True
    return documents[keep].contiguous()


def report(rank, world, step, size):
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world)] if rank == 0 else None
    dist.gather(torch.tensor([size]), sizes, dst=0)
    if rank == 0:
        print(f"step {step}: banks {[s.item() for s in sizes]}", flush=True)


def main():
    torch.manual_seed(4)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(Towers())
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(STEPS):
        q, d = model(*pairs(rank, step))
        bank = hardest(d.detach(), q.detach())
        negatives = [b for origin, b in rotate_banks(bank, DIM) if origin != rank]
        logits = q @ torch.cat([d, *negatives]).T / 0.1
        loss = F.cross_entropy(logits, torch.arange(len(q)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            report(rank, world, step, len(bank))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
