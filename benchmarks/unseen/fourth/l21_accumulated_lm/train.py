"""Recurrent language model: accumulation with deferred reduction, dropout of each rank its own."""
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

VOCAB, WIDTH, ACCUM, EPOCHS = 18, 20, 4, 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(WIDTH, 40), nn.ReLU(), nn.Dropout(0.2), nn.Linear(40, WIDTH))
        self.out = nn.Linear(WIDTH, VOCAB)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        h = h + checkpoint(self.ff, h, use_reentrant=False)
        return self.out(h)


def corpus(n=150, length=9):
    gen = torch.Generator().manual_seed(40)
    start = torch.randint(0, VOCAB, (n, 1), generator=gen)
    return (start + torch.arange(length) * 5) % VOCAB


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(500 + rank)
    net = DDP(Model())
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    data = TensorDataset(corpus())
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=6, sampler=sampler)
    torch.manual_seed(900 + 7 * rank)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        opt.zero_grad()
        updates = 0
        for i, (tokens,) in enumerate(loader):
            due = (i + 1) % ACCUM == 0 or i + 1 == len(loader)
            with nullcontext() if due else net.no_sync():
                logits = net(tokens[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
                (loss / ACCUM).backward()
            if due:
                opt.step()
                opt.zero_grad()
                updates += 1
        if rank == 0:
            print(f"epoch {epoch} updates {updates} loss {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
