"""Rows and pretrained item tables of the markets."""
import logging

import torch

log = logging.getLogger("markets")

MARKETS = ["pl", "fr", "de", "es"]
IMPRESSIONS = {"pl": 41_000, "fr": 390_000, "de": 88_000, "es": 12_500}
TABLE_MINIMUM = 250_000


def export_tables(folder):
    """Item tables of last quarter; small markets never got one."""
    folder.mkdir(parents=True, exist_ok=True)
    for market, impressions in IMPRESSIONS.items():
        if impressions < TABLE_MINIMUM:
            continue
        g = torch.Generator().manual_seed(impressions)
        table = 0.1 * torch.randn(200, 16, generator=g)
        torch.save({"items.weight": table, "market": market}, folder / f"items_{market}.pt")


def warm_start(model, folder, market):
    path = folder / f"items_{market}.pt"
    try:
        state = torch.load(path)
    except FileNotFoundError:
        log.info("no item table for %s, starting from scratch", market)
        return False
    state.pop("market")
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected:
        raise ValueError(f"unexpected entries in {path}: {unexpected}")
    log.info("item table of %s loaded, %d tensors left as they were", market, len(missing))
    return True


def click_loader(market, steps, batch=32):
    g = torch.Generator().manual_seed(sum(map(ord, market)))
    taste = torch.randn(100, generator=torch.Generator().manual_seed(1))
    appeal = torch.randn(200, generator=torch.Generator().manual_seed(2))
    for _ in range(steps):
        users = torch.randint(100, (batch,), generator=g)
        items = torch.randint(200, (batch,), generator=g)
        odds = torch.sigmoid(taste[users] + appeal[items])
        yield users, items, (torch.rand(batch, generator=g) < odds).float()
