import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from utils.evaluation import Evaluator
from utils.roles import Roles


def dataset(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 1, 8, 8, generator=g)
    return TensorDataset(x, (x.mean((1, 2, 3)) > 0).long())


class ConvNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2)
        )


class Trainer:
    def __init__(self, roles, callbacks):
        self.roles = roles
        self.callbacks = callbacks
        torch.manual_seed(11)
        self.model = DDP(ConvNet())
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        data = dataset(64 * roles.world, seed=1)
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=16, sampler=self.sampler)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                self.opt.zero_grad()
                nn.functional.cross_entropy(self.model(x), y).backward()
                self.opt.step()
            for cb in self.callbacks:
                cb.on_epoch_end(self, epoch)
            dist.barrier()


def main():
    dist.init_process_group("gloo")
    roles = Roles()
    evaluator = Evaluator(DataLoader(dataset(80, seed=2), batch_size=20))
    Trainer(roles, [evaluator]).fit(epochs=3)
    if roles.is_writer:
        print("finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
