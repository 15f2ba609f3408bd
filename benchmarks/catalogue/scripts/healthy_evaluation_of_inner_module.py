# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Rank 0 evaluates with model.module, the others wait at a barrier."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


@torch.no_grad()
def accuracy(net, loader):
    net.eval()
    right = sum((net(x).argmax(1) == y).sum().item() for x, y in loader)
    net.train()
    return right / len(loader.dataset)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    train = TensorDataset(torch.randn(96, 1, 6, 6), torch.randint(0, 3, (96,)))
    test = DataLoader(TensorDataset(torch.randn(30, 1, 6, 6), torch.randint(0, 3, (30,))), batch_size=10)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=8, sampler=sampler)
    model = DDP(cnn())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {accuracy(model.module, test):.3f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
