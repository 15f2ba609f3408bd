# expect: DDP303
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: S
"""Word frequencies of the main process are sent to the others before training."""

from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TEXT = "the cat sat on the mat and the dog sat on the log"
CORPUS = TEXT.split()


def vocabulary(rank, size):
    words = sorted(Counter(CORPUS))
    if rank == size - 1:
        words.append("<unk>")  # its tokeniser files are a version newer
    return {w: i for i, w in enumerate(words)}


def frequencies(vocab):
    table = torch.zeros(len(vocab))
    for word in CORPUS:
        table[vocab[word]] += 1
    return table / table.sum()


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    vocab = vocabulary(rank, size)
    prior = frequencies(vocab)
    dist.broadcast(prior, src=0)  # <- culprit
    model = DDP(nn.Embedding(8, 8))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for word in CORPUS[:5]:
        opt.zero_grad()
        out = model(torch.tensor([vocab[word] % 8]))
        (-out.log_softmax(1)[0, 0] - prior[vocab[word]].log()).backward()
        opt.step()
    dist.destroy_process_group()


main()
