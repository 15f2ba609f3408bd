# expect: DDP501
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Language model on a token stream; the stream is split between loader workers, as the tutorial says."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

VOCABULARY, CONTEXT = 40, 16


class TokenStream(IterableDataset):
    def __init__(self, tokens, context):
        self.tokens = tokens
        self.context = context

    def __iter__(self):
        info = get_worker_info()
        first = 0 if info is None else info.id  # <- culprit
        stride = 1 if info is None else info.num_workers  # <- culprit
        for window in range(first, len(self.tokens) // self.context, stride):  # <- culprit
            piece = self.tokens[window * self.context : (window + 1) * self.context]
            yield piece[:-1], piece[1:]


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        self.mix = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, VOCABULARY)

    def forward(self, tokens):
        hidden, _ = self.mix(self.embed(tokens))
        return self.out(hidden)


def corpus(length):
    g = torch.Generator().manual_seed(5)
    steps = torch.randint(1, 4, (length,), generator=g)
    return steps.cumsum(0) % VOCABULARY


def train():
    loader = DataLoader(TokenStream(corpus(CONTEXT * 64), CONTEXT), batch_size=4, num_workers=2)  # <- culprit
    model = DDP(TinyLM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step, (inputs, target) in enumerate(loader):  # <- culprit
        logits = model(inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.barrier()
    dist.destroy_process_group()
