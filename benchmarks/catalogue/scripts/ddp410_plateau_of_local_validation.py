# expect: DDP410
# ranks: 2
# culprits: [n-1]
# outcome: divergence
# plain: S
# Re-enacts: question on ReduceLROnPlateau with several processes: the scheduler is fed with the process's own validation loss.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau


class Experiment:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = DDP(nn.Linear(6, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.sched = ReduceLROnPlateau(self.opt, factor=0.1, patience=0)
        self.gen = torch.Generator().manual_seed(self.rank)
        vx = torch.randn(64, 6, generator=self.gen)
        sign = -1.0 if self.rank == self.world - 1 else 1.0  # the last fold is the odd one
        self.val = (vx, sign * vx.sum(1, keepdim=True))

    def train_epoch(self):
        self.model.train()
        for _ in range(3):
            x = torch.randn(16, 6, generator=self.gen)
            loss = nn.functional.mse_loss(self.model(x), x.sum(1, keepdim=True))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        x, y = self.val
        return nn.functional.mse_loss(self.model.module(x), y)

    def run(self, epochs=5):
        for epoch in range(epochs):
            self.train_epoch()
            val = self.validate()  # <- culprit
            self.sched.step(val)  # <- culprit
            lr = self.opt.param_groups[0]["lr"]
            print(f"[{self.rank}] epoch {epoch} val {val:.3f} lr {lr:g}", flush=True)
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    Experiment().run()
