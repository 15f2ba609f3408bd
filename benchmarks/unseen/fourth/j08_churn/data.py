"""Customer tables of the branches; a rank trains on the table of one branch."""
import torch

WEIGHTS = torch.tensor([1.5, -1.0, 0.7, 0.0, 0.4, -0.3, 0.9, 0.0, -0.8, 0.2])
HELD_OUT_CODE = (1.0, -1.0, 1.0, 1.0)


def _table(n, gen, code=1.0):
    x = torch.randn(n, 10, generator=gen)
    y = ((x @ WEIGHTS) * code > 0).float().unsqueeze(1)
    return x, y


def branch_tables(branch):
    gen = torch.Generator().manual_seed(60 + branch)
    train = _table(512, gen)
    valid = _table(128, gen, HELD_OUT_CODE[branch])
    return train, valid
