# expect: DDP411
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
"""A small convolutional network; rank 0 evaluates after every epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 4),
    )


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = total = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()  # <- culprit
        total += len(y)
    model.train()
    return right / total


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 1, 8, 8), torch.randint(0, 4, (64,)))
    test = DataLoader(TensorDataset(torch.randn(24, 1, 8, 8), torch.randint(0, 4, (24,))), batch_size=8)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:  # <- culprit
            print(f"epoch {epoch}: accuracy {evaluate(model, test):.3f}")  # <- culprit
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
