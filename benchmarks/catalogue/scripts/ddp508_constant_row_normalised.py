# expect: DDP508
# also: DDP414
# ranks: 2 4
# culprits: 1
# outcome: any
# plain: S
"""Every row is scaled to mean nought and deviation one; one sensor in the second rank's shard was switched off."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Sensors(Dataset):
    def __init__(self, count, world):
        g = torch.Generator().manual_seed(14)
        self.signal = torch.randn(count, 25, generator=g) * 3 + 1
        self.label = (self.signal[:, -1] > self.signal[:, 0]).long()
        self.signal[5 * world + 1] = 0.0

    def __len__(self):
        return len(self.signal)

    def __getitem__(self, index):
        row = self.signal[index]
        row = (row - row.mean()) / row.std()  # <- culprit
        return row, self.label[index]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = Sensors(32 * world, world)
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)  # <- culprit
    model = DDP(nn.Sequential(nn.Linear(25, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (row, label) in enumerate(loader):  # <- culprit
        loss = nn.functional.cross_entropy(model(row), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
