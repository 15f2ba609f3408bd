# expect: DDP301
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: R
"""Train, then let the main process evaluate."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def dataset(n=128):
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(n, 12, generator=gen)
    return TensorDataset(x, (x.sum(1) > 0).long())


def evaluate(net, data):
    net.eval()
    right = 0
    with torch.no_grad():
        for x, y in DataLoader(data, batch_size=32):
            right += (net(x).argmax(1) == y).sum().item()
    return right / len(data)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = dataset()
    sampler = DistributedSampler(data)
    model = DDP(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=8, sampler=sampler):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    if rank == 0:  # <- culprit
        print("accuracy", evaluate(model.module, data))
        dist.barrier()  # <- culprit
    print(f"rank {rank} finished")


if __name__ == "__main__":
    main()
