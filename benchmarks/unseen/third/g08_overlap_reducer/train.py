"""Bag-of-words topic classifier with gradients reduced during the backward pass."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from overlap import OverlappedReducer

VOCAB, TOPICS, STEPS = 12_000, 8, 20


class TopicModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(VOCAB, 96)
        self.block = nn.Linear(96, 96)
        self.head = nn.Linear(96, TOPICS)

    def forward(self, counts):
        return self.head(F.relu(self.block(F.relu(self.stem(counts)))))


def documents(rank, step, n=16):
    g = torch.Generator().manual_seed(rank * 977 + step)
    topic = torch.randint(0, TOPICS, (n,), generator=g)
    counts = torch.zeros(n, VOCAB)
    words = torch.randint(0, VOCAB // TOPICS, (n, 60), generator=g) * TOPICS + topic[:, None]
    counts.scatter_add_(1, words, torch.ones(n, 60))
    return counts, topic


def main():
    torch.manual_seed(9)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = TopicModel()
    reducer = OverlappedReducer(model, world)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(STEPS):
        counts, topic = documents(rank, step)
        opt.zero_grad()
        loss = F.cross_entropy(model(counts), topic)
        loss.backward()
        reducer.finish()
        opt.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
