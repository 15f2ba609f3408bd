import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from callbacks import CallbackList, History, Patience, WarmLR
from data import branch_tables
from loop import Loop


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(12)
    net = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1))
    model = DDP(net)
    optim = torch.optim.SGD(model.parameters(), lr=0.02)
    train, valid = branch_tables(rank)

    history = History()
    callbacks = CallbackList([WarmLR(optim, steps=10), history, Patience(3, delta=1e-5)])
    loop = Loop(model, optim, callbacks, max_epochs=30)
    loop.run(train, valid)

    reports = [None] * dist.get_world_size() if rank == 0 else None
    dist.gather_object({"epochs": loop.epoch, "last": history.values[-1]}, reports)
    if rank == 0:
        for i, report in enumerate(reports):
            print(i, report, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
