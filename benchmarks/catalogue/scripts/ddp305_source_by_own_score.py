# expect: DDP305
# ranks: 2
# culprits: [n-1]
# outcome: hang
# plain: T
# Re-enacts: question on model selection: every process works out from its own score who has the best epoch to hand out.
import argparse
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--target", type=float, default=0.05)
    return p.parse_args()


def local_validation(rank, world, epoch):
    # each process has a fold of its own; the last fold is the easy one
    base = 0.01 if rank == world - 1 else 0.4
    return base / (epoch + 1)


def owner_of_best(score, target):
    """Rank 0 keeps the record unless a fold has reached the target."""
    return dist.get_rank() if score < target else 0  # <- culprit


def publish_best_epoch(history, target):
    best = min(range(len(history)), key=history.__getitem__)
    record = torch.tensor([float(best), history[best]])
    src = owner_of_best(history[best], target)  # <- culprit
    dist.broadcast(record, src=src)  # <- culprit
    return record


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(rank)
    history = []
    for epoch in range(args.epochs):
        for _ in range(2):
            x = torch.randn(6, 5, generator=g)
            loss = (model(x) - 1).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        history.append(local_validation(rank, world, epoch))
    record = publish_best_epoch(history, args.target)  # <- culprit
    print(f"[{rank}] best epoch {int(record[0])} with {record[1]:.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
