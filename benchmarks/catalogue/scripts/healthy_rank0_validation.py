# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Validation on rank 0 through the plain module, early stopping decided there and told to the others."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BEST = os.path.join(tempfile.gettempdir(), f"best-{os.environ.get('MASTER_PORT', '0')}.pt")


def make_data():
    g = torch.Generator().manual_seed(21)
    x = torch.randn(160, 8, generator=g)
    y = (x[:, 0] * x[:, 1] > 0).long()
    return TensorDataset(x[:128], y[:128]), TensorDataset(x[128:], y[128:])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(32, 2)

    def forward(self, x):
        return self.head(self.body(x))


@torch.no_grad()
def validate(net, data):
    net.eval()
    total = hits = 0
    for x, y in DataLoader(data, batch_size=10):
        hits += (net(x).argmax(1) == y).sum().item()
        total += len(y)
    net.train()
    return hits / total


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    train_set, val_set = make_data()
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    torch.manual_seed(rank)
    model = DDP(Net())
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    best, waited = 0.0, 0
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        stop = [False]
        if rank == 0:
            acc = validate(model.module, val_set)
            waited = 0 if acc > best else waited + 1
            if acc >= best:
                best = acc
                torch.save(model.module.state_dict(), BEST)
            stop[0] = waited >= 2
            print(f"epoch {epoch} accuracy {acc:.3f}", flush=True)
        dist.broadcast_object_list(stop, src=0)
        if stop[0]:
            break
    dist.barrier()
    model.module.load_state_dict(torch.load(BEST, map_location="cpu"))
    dist.barrier()
    if rank == 0:
        os.remove(BEST)
        print("best", validate(model.module, val_set))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
