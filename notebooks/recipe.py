"""A training script with everything. It hangs with two of its options together: which two?

usage: recipe.py [--epochs N] [--num-workers N] [--amp] [--evaluate] [--checkpoint FILE] [--log] [--teams] [--fixed]
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--num-workers", type=int, default=0, help="processes of each rank that load data")
    parser.add_argument("--amp", action="store_true", help="mixed precision")
    parser.add_argument("--evaluate", action="store_true", help="measure the loss on other data after each epoch")
    parser.add_argument("--checkpoint", metavar="FILE", help="keep the best model in this file")
    parser.add_argument("--log", action="store_true", help="print the loss, averaged over all ranks")
    parser.add_argument("--teams", action="store_true", help="and averaged over pairs of ranks")
    parser.add_argument("--fixed", action="store_true")
    return parser.parse_args()


def make_data(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 16, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True) + torch.randn(count, 1, generator=generator))


def average(value: torch.Tensor, group: dist.ProcessGroup | None = None) -> float:
    value = value.detach().clone()
    dist.all_reduce(value, group=group)
    return value.item() / dist.get_world_size(group)


def main() -> None:
    args = parse_arguments()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    team = None
    if args.teams:
        team, _ = dist.new_subgroups(2)

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = make_data(256, seed=1)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 32, sampler=sampler, num_workers=args.num_workers)
    others, wanted_of_others = make_data(24, seed=5)[rank::size]

    best = float("inf")
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for inputs, wanted in loader:
            with torch.autocast("cpu", torch.bfloat16, enabled=args.amp):
                loss = nn.functional.mse_loss(model(inputs), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        score = -epoch  # as long as nothing is measured, the last model is the best
        if args.evaluate:
            with torch.no_grad():
                measured = nn.functional.mse_loss(model.module(others), wanted_of_others)
            score = average(measured) if args.fixed else measured.item()
        if args.checkpoint and score < best:
            best = score
            if rank == 0:
                torch.save(model.module.state_dict(), args.checkpoint)
            dist.barrier()  # the file is complete before a rank continues
        if args.log:
            line = f"epoch {epoch}: loss {average(loss):.3f}"
            if team is not None:
                line += f", of this team {average(loss, team):.3f}"
            print(line, flush=True)

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
