# expect: DDP416
# ranks: 2 4
# culprits: 1
# outcome: any
# plain: A
"""Low-rank gradient compression (PowerSGD); the import is guarded, and one rank has it switched off."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel as DDP


class Options:
    def __init__(self, rank):
        self.compress = rank != 1  # <- culprit
        self.matrix_rank = 2


def configure(model, options):
    if not options.compress:  # <- culprit
        return model
    state = powersgd.PowerSGDState(
        None,
        matrix_approximation_rank=options.matrix_rank,
        start_powerSGD_iter=2,
        min_compression_rate=1,
    )
    model.register_comm_hook(state, powersgd.powerSGD_hook)  # <- culprit
    return model


def train(options, steps=8):
    torch.manual_seed(0)
    model = configure(DDP(nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 16))), options)  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(dist.get_rank())
    for _ in range(steps):
        x = torch.randn(8, 32)
        loss = (model(x) - x[:, :16]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()  # <- culprit
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(Options(dist.get_rank()))
    dist.destroy_process_group()
