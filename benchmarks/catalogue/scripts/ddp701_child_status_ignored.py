# expect: DDP701
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Training runs in a child process, so that its memory is given back; nobody asks how the child ended."""

import multiprocessing as mp

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def train(settings):
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(dist.get_rank())
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
    for _ in range(settings["steps"]):
        x = torch.randn(8, 4, generator=g)
        loss = nn.functional.mse_loss(model(x), x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.module.state_dict(), settings["output"])  # <- culprit
    dist.destroy_process_group()


def main():
    settings = {"lr": 0.1, "steps": 5, "out": "/dev/null"}
    child = mp.get_context("spawn").Process(target=train, args=(settings,))
    child.start()
    child.join()  # <- culprit
    print("training finished", flush=True)  # <- culprit


if __name__ == "__main__":
    main()
