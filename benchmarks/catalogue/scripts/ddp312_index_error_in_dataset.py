# expect: DDP312
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: R
"""Windows over a long series; the last process gets the end of it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, SequentialSampler


class Windows(Dataset):
    def __init__(self, series, width, first, last):
        self.series, self.width = series, width
        self.first, self.last = first, last

    def __len__(self):
        return self.last - self.first

    def __getitem__(self, i):
        start = self.first + i
        target = self.series[start + self.width]  # <- culprit
        return self.series[start : start + self.width], target


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    series = torch.sin(torch.arange(24.0 * size) / 5)
    data = Windows(series, 6, 24 * rank, 24 * rank + 20)
    loader = DataLoader(data, batch_size=4, sampler=SequentialSampler(data))
    model = DDP(nn.Linear(6, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in loader:  # <- culprit
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(rank, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
