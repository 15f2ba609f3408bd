"""Bag-of-words sentiment model."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from data import Corpus

WIDTH, EPOCHS, BATCH = 12, 3, 6


class BagOfWords(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.table = nn.EmbeddingBag(words, WIDTH, mode="mean")
        self.hidden = nn.Linear(WIDTH, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, ids):
        return self.out(torch.relu(self.hidden(self.table(ids))))


def report(epoch, loss, rank, world):
    losses = [torch.zeros(1) for _ in range(world)]
    dist.all_gather(losses, torch.tensor([loss]))
    if rank == 0:
        print(f"epoch {epoch} loss {torch.cat(losses).mean():.4f}", flush=True)


def train(net, corpus, rank, world):
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for epoch in range(EPOCHS):
        total, n = 0.0, 0
        for ids, y in corpus.batches(BATCH):
            loss = nn.functional.binary_cross_entropy_with_logits(net(ids), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total, n = total + loss.item(), n + 1
        report(epoch, total / n, rank, world)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    corpus = Corpus(rank, world)
    net = DDP(BagOfWords(len(corpus.vocab)))
    train(net, corpus, rank, world)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
