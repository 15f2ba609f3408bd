"""Interaction table of a part, and popularity statistics over all parts."""
import torch
import torch.distributed as dist

from store import LocalStore


def build_table(part, n_items, rows=1280):
    gen = torch.Generator().manual_seed(900 + part)
    user = torch.randint(0, 200, (rows,), generator=gen)
    item = torch.randint(0, n_items, (rows,), generator=gen)
    click = ((user + item) % 5 == 0).float()
    return user, item, click


def _count(table, n_items):
    _, item, click = table
    seen = torch.zeros(n_items).index_add_(0, item, torch.ones_like(click))
    hits = torch.zeros(n_items).index_add_(0, item, click)
    return torch.stack([seen, hits])


def item_statistics(scratch, table, n_items):
    def compute():
        counts = _count(table, n_items)
        dist.all_reduce(counts)
        rate = counts[1] / counts[0].clamp(min=1)
        return torch.stack([counts[0].log1p(), rate], dim=1).tolist()

    store = LocalStore(scratch)
    return torch.tensor(store.get_or_make("item_stats", compute))
