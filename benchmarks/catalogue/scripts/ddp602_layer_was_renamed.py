# expect: DDP602
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: E
"""The classifier layer has another name since the checkpoint was written; the first rank loads for all."""

import os
import tempfile
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TextModel(nn.Module):
    """Was: embed, fc. Is: embed, classifier."""

    def __init__(self, words=60, width=16, classes=4):
        super().__init__()
        self.embed = nn.EmbeddingBag(words, width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.classifier(self.embed(tokens))


def last_years_checkpoint():
    path = os.path.join(tempfile.gettempdir(), f"text-model-{os.getpid()}.pt")
    state = OrderedDict()
    state["embed.weight"] = torch.randn(60, 16)
    state["fc.weight"] = torch.randn(4, 16)
    state["fc.bias"] = torch.zeros(4)
    torch.save(state, path)
    return path


def load(model, path):
    state = torch.load(path)
    os.remove(path)
    model.load_state_dict(state)  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = TextModel()
    if rank == 0:
        load(model, last_years_checkpoint())  # <- culprit
    model = DDP(model)  # wrapping gives the weights of the first rank to all
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(rank)
    for _ in range(5):
        tokens = torch.randint(0, 60, (8, 10), generator=g)
        loss = nn.functional.cross_entropy(model(tokens), tokens.sum(1) % 4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
