"""Packs instruction/answer pairs into fixed blocks and hands out blocks per replica."""
import os
import random

import torch
from torch.utils.data import Dataset, Sampler

PAD, BOS, SEP = 0, 1, 2


class PackedDialogues(Dataset):
    def __init__(self, n_pairs=600, block=24, vocab=64, seed=11):
        rng = random.Random(seed)
        stream = []
        for _ in range(n_pairs):
            start = rng.randint(3, vocab - 1)
            prompt = [(start + k) % (vocab - 3) + 3 for k in range(rng.randint(3, 8))]
            stream += [BOS, *prompt, SEP, *reversed(prompt)]
        usable = len(stream) // block * block
        self.blocks = torch.tensor(stream[:usable]).view(-1, block)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        return self.blocks[i]


def replica_from_env(names=("SLURM_NODEID", "GROUP_RANK", "NODE_RANK")):
    """Position of this process among the data-parallel replicas."""
    for name in names:
        if name in os.environ:
            return int(os.environ[name])
    return 0


class BlockSampler(Sampler):
    def __init__(self, n, replicas, seed=0, replica=None):
        self.n, self.replicas, self.seed = n, replicas, seed
        self.replica = replica_from_env() if replica is None else replica
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.n // self.replicas

    def __iter__(self):
        order = list(range(self.n))
        random.Random(f"{self.seed}/{self.epoch}").shuffle(order)
        first = self.replica * len(self)
        return iter(order[first:first + len(self)])
