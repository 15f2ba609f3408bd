# expect: DDP402
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Adapters per language, each rank reads the corpus of its own language."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LANGUAGES = ["en", "de"]


class Adapted(nn.Module):
    def __init__(self, dim: int = 12, vocab: int = 20) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.adapters = nn.ModuleDict({name: nn.Linear(dim, dim) for name in LANGUAGES})
        self.out = nn.Linear(dim, vocab)

    def forward(self, tokens: torch.Tensor, language: str) -> torch.Tensor:
        hidden = torch.tanh(self.mix(self.embed(tokens)))
        hidden = hidden + self.adapters[language](hidden)  # <- culprit
        return self.out(hidden)


def language_of(rank: int, world: int) -> str:
    return "de" if rank == world - 1 else "en"  # <- culprit


def train(steps: int = 8) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Adapted(), find_unused_parameters=True)  # <- culprit
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    language = language_of(rank, world)  # <- culprit
    torch.manual_seed(rank)
    for _ in range(steps):
        tokens = torch.randint(0, 20, (4, 9))
        logits = model(tokens[:, :-1], language)  # <- culprit
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.barrier()
    dist.destroy_process_group()
