# expect: DDP412
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""The norms of a wrapped model are replaced, then the model is fine-tuned with frozen statistics."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def mlp():
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 2)
    )


def to_sync(model):
    """Make all batch norms synchronised."""
    model.module = nn.SyncBatchNorm.convert_sync_batchnorm(model.module)  # <- culprit
    return model


def freeze_statistics(model):
    for m in model.modules():
        if isinstance(m, (nn.BatchNorm1d, nn.SyncBatchNorm)):
            m.eval()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = to_sync(DDP(mlp()))  # <- culprit
    freeze_statistics(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(8):
        x = torch.randn(8, 8, generator=g)
        loss = nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
