import copy
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from core.io import FlakyStore


class Trainer:
    def __init__(self, cfg):
        self.cfg, self.rank = cfg, dist.get_rank()
        torch.manual_seed(cfg["seed"])
        backbone = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.net = nn.ModuleDict({"backbone": backbone, "head": nn.Linear(144, 2)})
        self.net.forward = lambda x: self.net["head"](self.net["backbone"](x))
        self.store = FlakyStore(self.rank)
        box = [tempfile.mkdtemp() if self.rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        self.dir = Path(box[0])
        self.skipped = 0
        self.set_backbone(False)

    def set_backbone(self, flag):
        self.net["backbone"].requires_grad_(flag)
        self.model = DDP(self.net)
        self.opt = torch.optim.SGD([p for p in self.net.parameters() if p.requires_grad], lr=self.cfg["lr"])

    def batch_ok(self, x):
        ok = torch.isfinite(x).all().float()
        dist.all_reduce(ok, op=dist.ReduceOp.MIN)
        return bool(ok)

    def train_epoch(self, epoch):
        batch = self.cfg["curriculum"][epoch]
        for i in range(6):
            x, y = self.store.fetch(epoch, i, batch)
            if not self.batch_ok(x):
                self.skipped += 1
                continue
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()

    def checkpoint(self, epoch):
        if self.rank == 0:
            torch.save(self.net.state_dict(), self.dir / f"{epoch}.pt")
        dist.barrier()
        state = torch.load(self.dir / f"{epoch}.pt", weights_only=True)
        self.net.load_state_dict(state)
        dist.barrier()
        if self.rank == 0:
            (self.dir / f"{epoch}.pt").unlink()

    def should_stop(self, epoch):
        flag = torch.zeros(1)
        if self.rank == 0:
            net = copy.deepcopy(self.model.module["backbone"]).eval()
            head = self.model.module["head"]
            with torch.no_grad():
                x, y = self.store.fetch(99, epoch, 64)
                acc = (head(net(x)).argmax(1) == y).float().mean().item()
            print(f"epoch {epoch} accuracy {acc:.3f}")
            flag += acc > 0.999 or epoch >= self.cfg["last_epoch"]
        dist.broadcast(flag, src=0)
        return bool(flag)

    def fit(self):
        for epoch in range(len(self.cfg["curriculum"])):
            if epoch == 1:
                self.set_backbone(True)
            self.train_epoch(epoch)
            self.checkpoint(epoch)
            if self.should_stop(epoch):
                break
        if self.rank == 0:
            self.dir.rmdir()
            print(f"skipped {self.skipped} batches")
