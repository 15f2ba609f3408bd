"""Rank 0 turns a text into numbers once, then all ranks count its words.

usage: torchrun --nproc-per-node 3 count_words.py FOLDER
"""

import argparse
import fcntl
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
args = parser.parse_args()
started, passed = time.monotonic(), 0


def checkpoint(text):
    global passed
    passed += 1
    since, rank, size = time.monotonic() - started, os.environ["RANK"], os.environ["WORLD_SIZE"]
    print(f"[+{since:.1f}s][R{rank}/{size}][{os.getpid()}] CHECKPOINT {passed}: {text}", flush=True)


def write_tokens(path):
    words = (args.folder / "text.txt").read_text().split()
    numbers = {word: number for number, word in enumerate(sorted(set(words)))}
    torch.save(torch.tensor([numbers[word] for word in words]), path)


def main():
    rank, cache = int(os.environ["RANK"]), args.folder / "tokens.pt"
    lock = open(args.folder / "tokens.lock", "w")
    if rank == 0:
        fcntl.flock(lock, fcntl.LOCK_EX)  # first: the others wait for this rank in init_process_group
    checkpoint("about to init the process group")
    dist.init_process_group("gloo")
    checkpoint("about to read the tokens")
    if rank == 0:
        write_tokens(cache)
    else:
        fcntl.flock(lock, fcntl.LOCK_SH)  # until they are written
    tokens = torch.load(cache)
    dist.barrier()  # the cache is removed only when all ranks have read it
    fcntl.flock(lock, fcntl.LOCK_UN)
    if rank == 0:
        cache.unlink()

    checkpoint("about to count")
    counts = tokens[rank :: dist.get_world_size()].bincount(minlength=int(tokens.max()) + 1)
    dist.all_reduce(counts)
    checkpoint(f"counted {int(counts.sum())} words")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
