import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

from stream import batched, documents


class TinyLM(nn.Module):
    def __init__(self, vocab=51, dim=20):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.LSTM(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


def epoch(model, opt, rank, world):
    n = 0
    total = 0.0
    with Join([model]):
        for ids, target in batched(documents(rank, world), 8):
            logits = model(ids)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=50)
            opt.zero_grad()
            loss.backward()
            opt.step()
            n += 1
            total += loss.item()
    return n, total


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(TinyLM())
    opt = torch.optim.SGD(model.parameters(), lr=0.3)
    for e in range(2):
        n, total = epoch(model, opt, rank, world)
        print(f"rank {rank} epoch {e}: {n} batches", flush=True)
        stats = torch.tensor([total, n], dtype=torch.float64)
        dist.all_reduce(stats)
        if rank == world - 1:
            print(f"epoch {e} mean loss {(stats[0] / stats[1]).item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
