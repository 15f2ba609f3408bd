# expect: DDP103
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
import os

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel


class Cluster:
    """Reads where we are. Ported from our SLURM scripts."""

    def __init__(self):
        env = os.environ
        self.rank = int(env.get("SLURM_PROCID", 0))  # <- culprit
        self.local_rank = int(env.get("SLURM_LOCALID", env.get("LOCAL_RANK", 0)))
        self.world_size = int(env.get("SLURM_NTASKS", env.get("WORLD_SIZE", 1)))

    @property
    def is_main(self):
        return self.rank == 0

    def connect(self):
        dist.init_process_group("gloo", rank=self.rank, world_size=self.world_size)  # <- culprit


def build():
    torch.manual_seed(1234)
    return nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 1))


cluster = Cluster()
print(f"process {os.getpid()}: rank {cluster.rank} of {cluster.world_size}", flush=True)
cluster.connect()

net = DistributedDataParallel(build())
optimizer = optim.Adam(net.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(77 + cluster.local_rank)

for step in range(6):
    x = torch.randn(8, 10, generator=generator)
    loss = (net(x).squeeze(1) - x.sum(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if cluster.is_main:
        print("step", step, "loss", loss.item())

dist.destroy_process_group()
