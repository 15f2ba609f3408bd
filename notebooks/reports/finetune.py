"""Train on one file of numbers per rank; then all ranks load the model that rank 0 has written.

usage: torchrun --nproc-per-node 4 finetune.py FOLDER [--timeout SECONDS]
"""

import argparse
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--timeout", type=float, default=1800)
args = parser.parse_args()


def batches(rank, size=16):
    numbers = [float(line) for line in (args.folder / f"part-{rank}.txt").read_text().split()]
    for start in range(0, len(numbers), size):
        yield torch.tensor(numbers[start : start + size]).unsqueeze(1)


def average_gradients(model):
    gradients = torch.cat([weight.grad.flatten() for weight in model.parameters()])
    dist.all_reduce(gradients)
    gradients /= dist.get_world_size()
    nn.utils.vector_to_parameters(gradients, [weight.grad for weight in model.parameters()])


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.timeout))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for step, inputs in enumerate(batches(rank)):
        loss = (model(inputs) - inputs.sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if rank == 0 and step % 4 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)

    checkpoint = args.folder / "model.pt"
    if rank == 0:
        torch.save(model.state_dict(), checkpoint)
    while not checkpoint.exists():
        time.sleep(0.5)
    model.load_state_dict(torch.load(checkpoint))
    print(f"rank {rank}: finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
