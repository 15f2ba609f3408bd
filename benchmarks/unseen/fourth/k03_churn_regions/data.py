import torch
from torch.utils.data import TensorDataset

REGIONS = ("north", "metro", "south", "islands")
SHIFT = {"north": 0.1, "metro": 0.9, "south": 0.05, "islands": 0.15}
N_FEATURES = 12


def region_table(name, rows, part):
    """Customers of one region; churn in the validation months follows the region's own mix."""
    g = torch.Generator().manual_seed(100 * REGIONS.index(name) + (0 if part == "train" else 1))
    w = torch.linspace(-1.5, 1.5, N_FEATURES)
    x = torch.randn(rows, N_FEATURES, generator=g)
    y = (x @ w > 0).float()
    if part == "val":
        flip = torch.rand(rows, generator=g) < SHIFT[name]
        y = torch.where(flip, 1 - y, y)
    return TensorDataset(x, y)
