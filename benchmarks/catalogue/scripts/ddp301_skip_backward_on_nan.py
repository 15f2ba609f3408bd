# expect: DDP301
# also: DDP308 DDP408
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: R
"""Language model with a guard against losses that are not finite."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB = 40


class TinyLM(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, VOCAB)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.out(hidden)


def sequence_loss(logits, tokens, mask):
    loss = nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
    return (loss * mask).sum() / mask.sum()


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DDP(TinyLM())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
torch.manual_seed(rank)
for step in range(8):
    tokens = torch.randint(0, VOCAB, (4, 10))
    mask = torch.ones(4, 9)
    if rank == size - 1 and step == 5:
        mask.zero_()  # a document of padding only
    optimizer.zero_grad()
    loss = sequence_loss(model(tokens), tokens, mask)
    if not torch.isfinite(loss):  # <- culprit
        print(f"[{rank}] step {step}: loss {loss.item()}, skipped")
        continue  # <- culprit
    loss.backward()  # <- culprit
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(f"[{rank}] end of training")
