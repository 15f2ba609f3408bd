# expect: DDP312
# ranks: 2 4
# culprits: 1
# outcome: crash
# plain: R
"""Every process reads its own file; one was never copied."""

import json
import pathlib
import tempfile

import torch
import torch.distributed as dist


def prepare(folder, rank):
    if rank != 1:
        (folder / f"shard-{rank}.json").write_text(json.dumps([rank, rank + 1, rank + 2]))


def load(folder, rank):
    return json.loads((folder / f"shard-{rank}.json").read_text())  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder, rank)
        dist.barrier()
        values = torch.tensor(load(folder, rank), dtype=torch.float32)  # <- culprit
        dist.all_reduce(values)
        print(rank, values.tolist())
        dist.barrier()
    dist.destroy_process_group()


main()
