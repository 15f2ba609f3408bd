# expect: DDP410
# ranks: 2 4
# culprits: 1
# outcome: divergence
# plain: S
"""The head is made anew on the rank that reads the corrected labels, when the optimiser exists already."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()


class Tagger(nn.Module):
    def __init__(self, tags=4):
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.rnn = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, tags)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


def corrected_labels():
    return rank == 1  # <- culprit


torch.manual_seed(0)
net = Tagger()
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)  # <- culprit
if corrected_labels():  # <- culprit
    net.head = nn.Linear(8, 4)  # <- culprit
model = DDP(net)

torch.manual_seed(rank)
for step in range(8):
    tokens = torch.randint(0, 30, (4, 6))
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), (tokens % 4).flatten())
    model.zero_grad()
    loss.backward()
    optimizer.step()  # <- culprit
dist.destroy_process_group()
