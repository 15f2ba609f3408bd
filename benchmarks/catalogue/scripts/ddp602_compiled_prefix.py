# expect: DDP602
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""Weights of a compiled model, 'module.' cut off with care; the compiler's own prefix is still there."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def strip(state):
    return {name.removeprefix("module."): tensor for name, tensor in state.items()}


class Mixer(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.across = nn.Linear(width, width)

    def forward(self, x):
        return x + self.across(self.norm(x))


def save_compiled(path):
    compiled = torch.compile(Mixer())
    wrapped = DDP(compiled)
    torch.save(strip(wrapped.state_dict()), path)  # <- culprit


def load_plain(path):
    model = Mixer()
    state = strip(torch.load(path))
    model.load_state_dict(state)  # <- culprit
    return DDP(model)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mixer.pt"
        save_compiled(path)
        model = load_plain(path)  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(4, 8)
        loss = (model(x) - x.roll(1, dims=1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()
