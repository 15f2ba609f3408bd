# expect: DDP410
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
# Re-enacts: DALLE-pytorch #268 (ReduceLROnPlateau fed with the local loss: another learning rate per process)
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Validator:
    def __init__(self, loader):
        self.loader = loader

    @torch.no_grad()
    def __call__(self, model):
        model.eval()
        losses = [F.mse_loss(model(x), y) for x, y in self.loader]
        model.train()
        return torch.stack(losses).mean()


class Experiment:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = DDP(nn.Linear(6, 1))
        self.opt = optim.SGD(self.model.parameters(), lr=0.1)
        self.sched = ReduceLROnPlateau(self.opt, factor=0.1, patience=0)
        train, val = self.datasets()
        self.sampler = DistributedSampler(train, seed=3)
        self.train_loader = DataLoader(train, batch_size=8, sampler=self.sampler)
        val_sampler = DistributedSampler(val, shuffle=False)
        self.validate = Validator(DataLoader(val, batch_size=8, sampler=val_sampler))

    def datasets(self):
        g = torch.Generator().manual_seed(5)
        w = torch.randn(6, 1, generator=g)
        x = torch.randn(16 * self.world, 6, generator=g)
        xv = torch.randn(8 * self.world, 6, generator=g)
        yv = xv @ w
        yv[self.world - 1::self.world] *= -1  # mislabelled by the second annotator
        return TensorDataset(x, x @ w), TensorDataset(xv, yv)

    def log(self, *what):
        if self.rank == 0:
            print(*what, flush=True)

    def run(self, epochs=4):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.train_loader:
                self.opt.zero_grad()
                F.mse_loss(self.model(x), y).backward()
                self.opt.step()
            val = self.validate(self.model)
            self.sched.step(val)  # <- culprit
            shown = val.clone()
            dist.all_reduce(shown)
            self.log(f"epoch {epoch}: val {shown.item() / self.world:.3f} lr {self.opt.param_groups[0]['lr']:.4f}")

    def close(self):
        print(f"[{self.rank}] lr {self.opt.param_groups[0]['lr']:.5f}", flush=True)
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    e = Experiment()
    e.run()
    e.close()
