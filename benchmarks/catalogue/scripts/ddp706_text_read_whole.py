# expect: DDP706
# ranks: 2 4
# culprits: 1
# outcome: crash
# plain: R
# needs: memory-group
"""Text is read whole into memory by all ranks; one machine has less of it than the others."""

import os
import pathlib

import torch
import torch.distributed as dist


def on_small_machine(megabytes):
    root = pathlib.Path("/sys/fs/cgroup/memory")
    limit = "memory.limit_in_bytes" if root.is_dir() else "memory.max"
    group = (root if root.is_dir() else root.parent) / f"node-{os.getpid()}"
    group.mkdir()
    (group / limit).write_text(str(megabytes << 20))
    (group / "cgroup.procs").write_text(str(os.getpid()))


def read(lines):
    text = []
    for number in range(lines):
        text.append(b"%d " % number * 200_000)  # <- culprit
    return text


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        on_small_machine(150)
    corpus = read(400)  # <- culprit
    count = torch.tensor([sum(map(len, corpus))])
    dist.all_reduce(count)  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()  # <- culprit
