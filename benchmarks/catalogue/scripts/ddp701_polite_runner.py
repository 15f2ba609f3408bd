# expect: DDP701
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Sweep item. The sweep driver wants every item to tidy up after itself, whatever happens."""
import io
import logging
import math
import traceback

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("item")


class Schedule:
    def __init__(self, cfg):
        self.cfg = cfg

    def lr(self, step):
        warm = self.cfg["warmup"]
        if step < warm:
            return self.cfg["lr"] * (step + 1) / warm
        span = self.cfg["steps"] - warm
        cos = 0.5 * (1 + math.cos(math.pi * (step - warm) / span))
        return self.cfg["min_lr"] + (self.cfg["lr"] - self.cfg["min_lr"]) * cos  # <- culprit


def train(cfg):
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(nn.Linear(4, 2))
    opt = torch.optim.SGD(model.parameters(), lr=cfg["lr"])
    schedule = Schedule(cfg)
    for step in range(cfg["steps"]):
        for group in opt.param_groups:
            group["lr"] = schedule.lr(step)
        x = torch.randn(8, 4)
        loss = (model(x) - x[:, :2]).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            log.info("step %d loss %.4f", step, loss.item())


def main():
    cfg = {"lr": 0.1, "warmup": 4, "steps": 20}
    dist.init_process_group("gloo")
    report = io.StringIO()
    try:
        train(cfg)
    except Exception:  # <- culprit
        traceback.print_exc(file=report)
    finally:
        dist.barrier()
        dist.destroy_process_group()
    if report.getvalue():
        log.warning("item ended early, see report (%d characters)", len(report.getvalue()))


if __name__ == "__main__":
    main()
