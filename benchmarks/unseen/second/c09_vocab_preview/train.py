from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from preview import preview
from vocab import load_vocab, read_corpus


@dataclass
class Context:
    rank: int = field(default_factory=dist.get_rank)
    world: int = field(default_factory=dist.get_world_size)

    @property
    def shows_preview(self):
        return self.rank == self.world // 2


class WordModel(nn.Module):
    def __init__(self, size, dim=16):
        super().__init__()
        self.emb = nn.Embedding(size, dim)
        self.lin = nn.Linear(dim, size)

    def forward(self, ids):
        return self.lin(self.emb(ids).cumsum(1))


def encode(corpus, vocab):
    return torch.tensor([[vocab[w] for w in line] for line in corpus])


def main():
    dist.init_process_group("gloo")
    ctx = Context()
    corpus = read_corpus(ctx.rank)
    if ctx.shows_preview:
        preview(corpus)
    vocab = load_vocab(corpus)
    ids = encode(corpus, vocab)
    torch.manual_seed(0)
    model = DDP(WordModel(len(vocab)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for chunk in ids.split(16):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(chunk[:, :-1]).flatten(0, 1), chunk[:, 1:].flatten())
            loss.backward()
            opt.step()
        print(f"[{ctx.rank}] epoch {epoch} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
