"""Click model with a table of embeddings and a dense tower."""
import torch
import torch.distributed as dist
import torch.nn as nn

from sync import LaneSync

ITEMS, WIDTH, HIDDEN = 300, 8, 36
STEPS, BATCH, SLOTS = 12, 32, 4


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.b = nn.Linear(HIDDEN, 1, bias=False)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def clicks(step, rank):
    gen = torch.Generator().manual_seed(step * 16 + rank)
    popular = 24 if (step, rank % 12) != (7, 1) else ITEMS
    ids = torch.randint(0, popular, (BATCH, SLOTS), generator=gen)
    return ids, (ids.sum(1, keepdim=True) % 2).float()


class Model:
    def __init__(self):
        torch.manual_seed(4)
        self.table = nn.Embedding(ITEMS, WIDTH)
        self.tower = Tower()

    def parts(self):
        return {"dense": self.tower, "table": self.table}

    def loss(self, ids, y):
        logits = self.tower(self.table(ids).mean(1))
        return nn.functional.binary_cross_entropy_with_logits(logits, y)

    def parameters(self):
        return list(self.table.parameters()) + list(self.tower.parameters())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = Model()
    sync = LaneSync(model.parts())
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for step in range(STEPS):
        ids, y = clicks(step, rank)
        opt.zero_grad()
        loss = model.loss(ids, y)
        loss.backward()
        sync.step()
        opt.step()
        if rank == 0 and step % 3 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
