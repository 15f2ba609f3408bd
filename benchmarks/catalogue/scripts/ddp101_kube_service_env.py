# expect: DDP101
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""Trainer entry point for the cluster image: pod settings first, then the usual loop."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

# what the platform mounts as /etc/podinfo/env (the service of the launcher pod is called "master")
PODINFO = """\
KUBERNETES_PORT=tcp://10.3.240.1:443
MASTER_SERVICE_HOST=10.3.241.12
MASTER_SERVICE_PORT=23456
MASTER_PORT=tcp://10.3.241.12:23456
MASTER_PORT_23456_TCP_PROTO=tcp
JOB_NAME=resnet-tiny
"""


def read_podinfo(text):
    pairs = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            key, _, value = line.partition("=")
            pairs[key] = value
    return pairs


def apply_podinfo(prefixes=("JOB_", "MASTER_", "WORKER_")):
    for key, value in read_podinfo(PODINFO).items():
        if key.startswith(prefixes):
            os.environ[key] = value  # <- culprit


def setup():
    apply_podinfo()
    dist.init_process_group("gloo")  # <- culprit
    return dist.get_rank()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=5)
    args = p.parse_args()
    rank = setup()
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(args.steps):
        x, y = torch.randn(4, 8), torch.randint(0, 3, (4,))
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            print(os.environ.get("JOB_NAME"), step, round(loss.item(), 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
