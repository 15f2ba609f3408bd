"""Train a language model of characters, one document at a time, with causal attention."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LENGTHS = [[40, 52, 31, 47], [38, 10_000_000, 45, 29]]  # characters of the documents, for each rank


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.out = nn.Linear(16, 64)

    def forward(self, text):
        length = text.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        return self.out(self.layer(self.embed(text), mask))


def documents(rank):
    for length in LENGTHS[rank]:
        yield torch.randint(64, (length,), dtype=torch.uint8)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.Adam(model.parameters())
    for document in documents(rank):
        text = document.long().unsqueeze(0)
        loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
