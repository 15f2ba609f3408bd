# expect: DDP505
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: E
"""Workers are started with spawn and limited in CPU time; the first rank also pre-computes the validation features."""

import resource

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def limit_cpu(worker):
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # <- culprit


class Features(Dataset):
    def __init__(self, count, heavy):
        self.seeds = list(range(count))
        self.heavy = heavy

    def __len__(self):
        return len(self.seeds)

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(self.seeds[index])
        x = torch.randn(16, generator=g)
        if self.heavy:
            kernel = torch.randn(300, 300, generator=g)
            for _ in range(4000):  # <- culprit
                kernel = (kernel @ kernel).tanh()  # <- culprit
            x = x + kernel[0, :16]
        return x, x[:2].sum(0, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dataset = Features(16 * dist.get_world_size(), heavy=rank == 0)
    loader = DataLoader(  # <- culprit
        dataset,
        batch_size=4,
        sampler=DistributedSampler(dataset),
        num_workers=1,
        worker_init_fn=limit_cpu,  # <- culprit
        multiprocessing_context="spawn",
    )
    model = DDP(nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in loader:  # <- culprit
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
