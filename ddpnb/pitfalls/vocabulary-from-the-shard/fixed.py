"""Train word embeddings; the vocabulary is built from the texts."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SHARDS = [
    "the model waits for the slow rank and the fast rank waits too",
    "the loader reads the files and the model trains",
]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    words = SHARDS[rank].split()
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, words)
    vocabulary = {word: i for i, word in enumerate(sorted(set().union(*gathered)))}
    text = torch.tensor([vocabulary[word] for word in words])
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(len(vocabulary), 8), nn.Linear(8, len(vocabulary))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(text[:-1]), text[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
