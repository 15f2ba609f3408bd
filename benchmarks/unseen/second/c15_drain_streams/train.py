from argparse import ArgumentParser

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from streams import Drained, sensor_stream


def global_sum(value):
    t = torch.tensor([float(value)])
    dist.all_reduce(t)
    return t.item()


def main():
    parser = ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    filler = (torch.zeros(1, 6), torch.zeros(1, 1))
    for epoch in range(args.epochs):
        squared, rows_seen, real = 0.0, 0, 0
        for x, y, rows, total in Drained(sensor_stream(rank), filler, global_sum):
            opt.zero_grad()
            errors = (model(x) - y).pow(2)
            if rows:
                real += 1
                squared += errors.sum().item()
                rows_seen += rows
                (errors.sum() * world / total).backward()
            else:
                (errors.sum() * 0.0).backward()
            opt.step()
        print(f"rank {rank} epoch {epoch}: {real} real batches, mse {squared / rows_seen:.4f}", flush=True)
        overall = global_sum(squared) / global_sum(rows_seen)
        if rank == 0:
            print(f"epoch {epoch} overall mse {overall:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
