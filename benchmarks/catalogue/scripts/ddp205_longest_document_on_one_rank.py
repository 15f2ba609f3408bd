# expect: DDP205
# ranks: 2
# culprits: [n-1]
# outcome: crash
# plain: E
# Re-enacts: issue "out of memory on one rank only": the longest document of the corpus lands on one process.
import math
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qk = nn.Linear(dim, 2 * dim)
        self.dim = dim

    def forward(self, x):
        q, k = self.qk(x).chunk(2, dim=-1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.dim)  # <- culprit
        return scores.softmax(-1) @ x


class Corpus:
    def __init__(self, rank, world):
        self.lengths = [64, 48, 80, 32]
        if rank == world - 1:
            self.lengths[2] = 8_000_000  # one complete log file that nobody cut into pieces

    def __iter__(self):
        for n in self.lengths:
            yield torch.ones(n, 2)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Attention(2))
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    for i, doc in enumerate(Corpus(rank, world)):
        out = model(doc)  # <- culprit
        loss = out.pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"[{rank}] document {i}: {doc.shape[0]} tokens, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
