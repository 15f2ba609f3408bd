# expect: DDP414
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Masked language model; in one batch of the last rank no position is masked, so the mean is 0/0."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, IGNORE = 20, -100


def mask_tokens(tokens, share, g):
    chosen = torch.rand(tokens.shape, generator=g) < share
    labels = tokens.masked_fill(~chosen, IGNORE)
    return tokens.masked_fill(chosen, 0), labels


def batches(rank, world, steps):
    g = torch.Generator().manual_seed(rank)
    for step in range(steps):
        tokens = torch.randint(1, VOCAB, (2, 8), generator=g)
        short = rank == world - 1 and step == 4  # very short documents
        yield mask_tokens(tokens, 0.0 if short else 0.4, g)


class Mlm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 12)
        self.mix = nn.Conv1d(12, 12, 3, padding=1)
        self.out = nn.Linear(12, VOCAB)

    def forward(self, tokens):
        return self.out(torch.relu(self.mix(self.embed(tokens).transpose(1, 2))).transpose(1, 2))


def masked_loss(logits, labels):
    mask = (labels != IGNORE).float()
    each = nn.functional.cross_entropy(logits.transpose(1, 2), labels.clamp(min=0), reduction="none")
    return (each * mask).sum() / mask.sum()  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Mlm())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for tokens, labels in batches(rank, world, 9):
        logits = model(tokens)
        loss = masked_loss(logits, labels)  # <- culprit
        optimizer.zero_grad()
        loss.backward()  # <- culprit
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
