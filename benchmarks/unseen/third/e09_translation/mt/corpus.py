import random

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

PAD, VOCAB = 0, 50


class ParallelCorpus(Dataset):
    """Rank-local part of a copy-with-shift task; the parts differ in sentence lengths."""

    def __init__(self, rank, sentences=150):
        rng = random.Random(f"corpus-{rank}")
        longest = 10 + 4 * rank
        self.lengths = [rng.randint(3, longest) for _ in range(sentences)]
        self.first = [rng.randint(1, VOCAB - 1) for _ in range(sentences)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        source = (self.first[i] + torch.arange(self.lengths[i])) % (VOCAB - 1) + 1
        return source, source % (VOCAB - 1) + 1


def collate(pairs):
    return tuple(pad_sequence(side, batch_first=True, padding_value=PAD) for side in zip(*pairs))


def probe_batch():
    """The same ten sentences everywhere: a check that all replicas can compute."""
    fixed = ParallelCorpus(rank=0, sentences=10)
    return collate([fixed[i] for i in range(len(fixed))])
