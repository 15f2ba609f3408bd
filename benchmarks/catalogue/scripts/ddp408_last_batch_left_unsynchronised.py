# expect: DDP408
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
"""The number of batches is not a multiple of the accumulation: the rest at the end of an epoch is stepped as it is."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_loader(world):
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(40 * world, 4), torch.randn(40 * world, 2))
    return DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))


def train_epoch(model, loader, optimizer, accumulate):
    for i, (x, y) in enumerate(loader):
        end_of_window = (i + 1) % accumulate == 0  # <- culprit
        model.require_backward_grad_sync = end_of_window  # <- culprit
        loss = nn.functional.mse_loss(model(x), y) / accumulate
        loss.backward()
        if end_of_window or i + 1 == len(loader):  # <- culprit
            optimizer.step()  # <- culprit
            optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    loader = make_loader(dist.get_world_size())  # 5 batches per rank
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(3):
        train_epoch(model, loader, optimizer, accumulate=2)  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
