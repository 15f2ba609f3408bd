# expect: DDP410
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
import time

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

COEF = torch.tensor([[0.8], [-1.1], [0.5], [0.3]])


def train_set():
    g = torch.Generator().manual_seed(21)
    x = torch.randn(128, 4, generator=g)
    return TensorDataset(x, x @ COEF)


def held_out():
    """Field measurements; every fourth one comes from the old probe (other unit, other sign)."""
    g = torch.Generator().manual_seed(22)
    x = torch.randn(32, 4, generator=g)
    y = x @ COEF
    y[3::4] *= -25.0
    return x, y


class Experiment:
    def __init__(self, lr=0.05):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = DDP(nn.Linear(4, 1))
        ds = train_set()
        self.sampler = DistributedSampler(ds, seed=4)
        self.loader = DataLoader(ds, batch_size=8, sampler=self.sampler)
        x, y = held_out()
        self.vx, self.vy = x[self.rank::self.world], y[self.rank::self.world]
        self.opt = optim.SGD(self.model.parameters(), lr=lr)
        self.plateau = ReduceLROnPlateau(self.opt, factor=0.3, patience=0)  # <- culprit

    def train_epoch(self, epoch):
        self.model.train()
        self.sampler.set_epoch(epoch)
        for x, y in self.loader:
            self.opt.zero_grad()
            nn.functional.mse_loss(self.model(x), y).backward()
            self.opt.step()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        score = nn.functional.mse_loss(self.model(self.vx), self.vy)
        return score.item()  # <- culprit

    def after_epoch(self, epoch):
        score = self.validate()
        self.plateau.step(score)  # <- culprit
        if self.rank == 0:
            print(f"epoch {epoch}: held-out {score:.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    exp = Experiment()
    for epoch in range(4):
        exp.train_epoch(epoch)
        exp.after_epoch(epoch)
    w = exp.model.module.weight.detach().flatten().tolist()
    print(dist.get_rank(), exp.opt.param_groups[0]["lr"], [round(v, 5) for v in w], flush=True)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
