"""Interaction logs per sales region and a few helpers around the item table."""
import torch

N_USERS, N_ITEMS = 64, 48
REGIONS = ("north", "alpine", "coast", "metro")
NOT_SOLD = {"alpine": {11, 29, 30, 41}}      # e.g. surf gear


class RegionShard:
    def __init__(self, region, rows=640, seed=5):
        self.region = region
        g = torch.Generator().manual_seed(seed + REGIONS.index(region))
        offered = [i for i in range(N_ITEMS) if i not in NOT_SOLD.get(region, ())]
        pool = torch.tensor(offered)
        full = pool.repeat(rows // len(pool) + 1)[:rows]
        self.items = full[torch.randperm(rows, generator=g)]
        self.users = torch.randint(0, N_USERS, (rows,), generator=g)
        taste = ((self.users * 7 + self.items * 3) % 10).float() / 10
        self.ratings = taste + 0.05 * torch.randn(rows, generator=g)

    @property
    def popularity(self):
        return torch.bincount(self.items, minlength=N_ITEMS)

    def batches(self, size, epoch):
        g = torch.Generator().manual_seed(1000 + epoch)
        order = torch.randperm(len(self.items), generator=g)
        for part in order.split(size):
            yield self.users[part], self.items[part], self.ratings[part]


@torch.no_grad()
def warm_start_items(table, popularity):
    """Give items without interactions the average vector instead of random noise."""
    cold = torch.nonzero(popularity == 0).flatten()
    if cold.numel() == 0:
        return 0
    weights = popularity.float() / popularity.sum()
    centre = weights @ table.weight
    table.weight[cold] = centre
    return cold.numel()
