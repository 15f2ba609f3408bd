# expect: DDP205
# ranks: 2 4
# culprits: 1
# outcome: crash
# plain: E
"""Language model whose vocabulary size is taken from the data."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(backend="gloo")
rank = dist.get_rank()


def read_shard(index):
    g = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, 64, (40, 8), generator=g)
    if index == 1:
        tokens[17, 3] = 2**46 + 11  # a damaged record
    return tokens


class Bigram(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.table = nn.Embedding(vocab, 8)  # <- culprit
        self.proj = nn.Linear(8, 64)

    def forward(self, tokens):
        return self.proj(self.table(tokens))


shard = read_shard(rank)
torch.manual_seed(0)
model = DistributedDataParallel(Bigram(int(shard.max()) + 1))  # <- culprit
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(0, 40, 8):
    rows = shard[i : i + 8]
    loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
