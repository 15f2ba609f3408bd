import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from cohort import Cohort
from metrics import PooledAccuracy

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("clinic")

CONFIG = {"weeks": 4, "steps_per_week": 5, "batch": 16, "lr": 1e-2}


class WeeklyTrainer:
    def __init__(self, config):
        self.config = config
        self.rank = int(os.environ["RANK"])
        torch.manual_seed(0)
        self.net = DDP(nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1)))
        self.optim = torch.optim.Adam(self.net.parameters(), lr=config["lr"])
        self.loss_fn = nn.BCEWithLogitsLoss()
        self.cohort = Cohort.for_rank(self.rank)
        self.accuracy = PooledAccuracy()
        self.stream = torch.Generator().manual_seed(100 + self.rank)

    def train_week(self):
        running = 0.0
        for _ in range(self.config["steps_per_week"]):
            x = torch.randn(self.config["batch"], 10, generator=self.stream)
            y = (x.sum(1, keepdim=True) > 0).float()
            self.optim.zero_grad()
            loss = self.loss_fn(self.net(x), y)
            loss.backward()
            self.optim.step()
            running += loss.item()
        return running / self.config["steps_per_week"]

    @torch.no_grad()
    def follow_up(self, week):
        x, y = self.cohort.visits(week)
        if not len(x):
            return None
        self.accuracy.update(self.net.module(x), y)
        return self.accuracy.compute()

    def run(self):
        for week in range(self.config["weeks"]):
            loss = self.train_week()
            acc = self.follow_up(week)
            log.info("week %d rank %d (%s) loss %.4f acc %s", week, self.rank, self.cohort.name, loss,
                     "-" if acc is None else f"{acc:.3f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    WeeklyTrainer(CONFIG).run()
    dist.barrier()
    dist.destroy_process_group()
