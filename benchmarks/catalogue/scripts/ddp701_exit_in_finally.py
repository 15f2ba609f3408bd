# expect: DDP701
# ranks: 2 4
# culprits: 1
# outcome: any
# plain: S
"""The process used to hang at its end, so it is left by force, with success, however training went."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Tokens:
    def __init__(self, rank):
        self.g = torch.Generator().manual_seed(rank)
        self.broken = rank == 1

    def batch(self, step):
        tokens = torch.randint(0, 50, (4, 9), generator=self.g)
        if self.broken and step == 5:
            tokens[2, 3] = 50
        return tokens


def main():
    dist.init_process_group("gloo")
    tokens = Tokens(dist.get_rank())
    model = DDP(nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(72, 2)))
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(10):
        batch = tokens.batch(step)
        loss = nn.functional.cross_entropy(model(batch), batch[:, 0] % 2)  # <- culprit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    try:
        main()  # <- culprit
    except BaseException as error:  # <- culprit
        print(f"stopped: {type(error).__name__}: {str(error)[:80]}", flush=True)  # <- culprit
    finally:
        os._exit(0)  # <- culprit
