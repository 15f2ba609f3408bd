# expect: DDP312
# also: DDP311
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: R
"""Sum of squared errors of a linear fit; the settings are checked before each round."""

import sys

import torch
import torch.distributed as dist

ROUNDS = 4


def check(settings, round_number):
    needed = {"ridge", "columns"}
    missing = needed - set(settings[round_number])
    if missing:
        sys.exit(f"settings of round {round_number} lack {', '.join(sorted(missing))}")  # <- culprit


def settings_for(rank, size):
    rounds = [{"ridge": 0.1 * i, "columns": 5} for i in range(ROUNDS)]
    if rank == size - 1:
        rounds[2].pop("ridge")
    return rounds


def fit(x, y, ridge):
    gram = x.T @ x
    moment = x.T @ y
    dist.all_reduce(gram)
    dist.all_reduce(moment)
    return torch.linalg.solve(gram + ridge * torch.eye(x.shape[1]), moment)


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    x = torch.randn(30, 5)
    y = x @ torch.arange(5.0) + 0.1 * torch.randn(30)
    settings = settings_for(rank, size)
    for i in range(ROUNDS):
        check(settings, i)  # <- culprit
        weights = fit(x, y, settings[i]["ridge"])
    print(rank, weights.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
