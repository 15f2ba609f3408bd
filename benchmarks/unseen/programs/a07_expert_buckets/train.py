from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F

from grads import GradReducer, TouchTracker
from moe import Model


@dataclass
class Config:
    steps: int = 12
    batch: int = 32
    lr: float = 0.05
    balance_above: float = 0.62


def kind_of(name):
    return "expert" if ".experts." in name else "dense"


def expert_load(model, x):
    with torch.no_grad():
        gates = model.moe.gate(torch.relu(model.stem(x))).softmax(-1)
        return gates.mean(0).max().item()


class Stream:
    def __init__(self, rank, cfg):
        self.gen = torch.Generator().manual_seed(rank)
        self.shift = {1: 4.0}.get(rank, 0.0)
        self.cfg = cfg

    def __iter__(self):
        for step in range(self.cfg.steps):
            x = torch.randn(self.cfg.batch, 10, generator=self.gen)
            if step == self.cfg.steps // 2:
                x = x.abs() * (1 + self.shift)
            yield x, (x.sum(1) > 0).long() + (x[:, 0] > 1).long()


def main(cfg):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = {kind: dist.new_group(list(range(world))) for kind in ("dense", "expert")}
    torch.manual_seed(0)
    model = Model()
    tracker = TouchTracker(model, kind_of)
    reducer = GradReducer(groups)
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    for step, (x, y) in enumerate(Stream(rank, cfg)):
        opt.zero_grad()
        if expert_load(model, x) > cfg.balance_above:
            (0.01 * model.balance_loss(x)).backward()
            early = tracker.take()
        else:
            early = []
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        seen = early + tracker.take()
        reducer(list(dict.fromkeys(seen)))
        opt.step()
        if rank == 0 and step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
