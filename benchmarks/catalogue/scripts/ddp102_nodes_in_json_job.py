# expect: DDP102
# ranks: 2
# culprits: any
# outcome: hang
# plain: T
# Re-enacts: issue "stuck in init_process_group": the config file still says two nodes, only one was started.
import os
import json
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CONFIG = json.loads("""
{
  "nnodes": 2,
  "lr": 0.05,
  "batch": 12,
  "steps": 5,
  "hidden": 24
}
""")


class Job:
    def __init__(self, cfg):
        self.cfg = cfg
        per_node = int(os.environ["LOCAL_WORLD_SIZE"])
        self.rank = int(os.environ["RANK"])
        self.world = cfg["nnodes"] * per_node  # <- culprit

    def connect(self):
        print(f"[{self.rank}] connecting, {self.world} processes in all", flush=True)
        dist.init_process_group(  # <- culprit
            "gloo", rank=self.rank, world_size=self.world)  # <- culprit
        print(f"[{self.rank}] connected", flush=True)

    def build(self):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(10, self.cfg["hidden"]), nn.Tanh(), nn.Linear(self.cfg["hidden"], 3))
        self.model = DistributedDataParallel(net)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=self.cfg["lr"])

    def run(self):
        g = torch.Generator().manual_seed(self.rank)
        for step in range(self.cfg["steps"]):
            x = torch.randn(self.cfg["batch"], 10, generator=g)
            y = torch.randint(0, 3, (self.cfg["batch"],), generator=g)
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()


job = Job(CONFIG)
job.connect()
job.build()
job.run()
dist.destroy_process_group()
