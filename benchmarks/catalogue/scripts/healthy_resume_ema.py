# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""Training in two legs with a resume between them. Averaged weights live on the main process only,
a batch with a broken loss is skipped by all ranks together."""
import copy
import os
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Ema:
    def __init__(self, net, decay=0.9):
        self.net, self.decay = copy.deepcopy(net).eval(), decay

    @torch.no_grad()
    def update(self, net):
        for a, b in zip(self.net.parameters(), net.parameters()):
            a.lerp_(b, 1 - self.decay)


def all_fine(loss):
    flag = torch.isfinite(loss.detach()).int()
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag)


class Leg:
    def __init__(self, folder, data):
        self.rank = dist.get_rank()
        self.path = os.path.join(folder, "last.pt")
        net = nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 1))
        self.start, state = 0, None
        if os.path.exists(self.path):
            state = torch.load(self.path, map_location="cpu")
            net.load_state_dict(state["net"])
            self.start = state["epoch"]
        self.model = DDP(net)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=4)
        if state:
            self.opt.load_state_dict(state["opt"])
            self.sched.load_state_dict(state["sched"])
        self.ema = Ema(net) if self.rank == 0 else None
        torch.manual_seed(500 + self.rank + 100 * self.start)  # dropout must differ between ranks
        self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, seed=2))

    def save(self, epoch):
        if self.rank == 0:
            torch.save({"net": self.model.module.state_dict(), "opt": self.opt.state_dict(),
                        "sched": self.sched.state_dict(), "epoch": epoch}, self.path + ".part")
            os.replace(self.path + ".part", self.path)
        dist.barrier()

    def run(self, until):
        for epoch in range(self.start, until):
            self.loader.sampler.set_epoch(epoch)
            for x, y in self.loader:
                loss = (self.model(x).squeeze(-1).exp() - y).pow(2).mean()
                if not all_fine(loss):
                    continue
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                if self.ema:
                    self.ema.update(self.model.module)
            self.sched.step()
            self.save(epoch + 1)
            if self.rank == 0:
                print(f"epoch {epoch} loss {loss.item():.4f} lr {self.sched.get_last_lr()[0]:.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    gen = torch.Generator().manual_seed(3)
    x = torch.randn(96, 5, generator=gen)
    x[40] *= 1e4  # a sensor that overflowed once
    data = TensorDataset(x, x[:, 0].tanh() + 1.0)
    box = [tempfile.mkdtemp(prefix="legs_")] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(box, src=0)
    torch.manual_seed(0)
    Leg(box[0], data).run(until=2)
    Leg(box[0], data).run(until=4)
    if dist.get_rank() == 0:
        shutil.rmtree(box[0])
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
