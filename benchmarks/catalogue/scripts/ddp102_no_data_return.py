# expect: DDP102
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Count words over the files of a folder, files dealt out to the processes."""

import os

import torch
import torch.distributed as dist

FILES = [f"part-{i:03d}.txt" for i in range(2 * (int(os.environ["WORLD_SIZE"]) - 1))]


def my_files(rank, size):
    per_rank = -(-len(FILES) // size) if size < 2 else 2
    return FILES[rank * per_rank : (rank + 1) * per_rank]


def count(name):
    gen = torch.Generator().manual_seed(len(name))
    return torch.bincount(torch.randint(0, 50, (400,), generator=gen), minlength=50)


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    files = my_files(rank, size)
    if not files:  # <- culprit
        print(f"rank {rank}: nothing to do")
        return  # <- culprit
    dist.init_process_group("gloo")
    total = sum(count(name) for name in files)
    dist.all_reduce(total)
    if rank == 0:
        print("most frequent word:", total.argmax().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
