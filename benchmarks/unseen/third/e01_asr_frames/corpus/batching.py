import random

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, Sampler

N_MELS = 16


class UtteranceSet(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        _, frames, chars = self.rows[i]
        g = torch.Generator().manual_seed(i)
        mel = torch.randn(frames, N_MELS, generator=g)
        return mel, mel[:, :4].mean(0).argmax()


def pad_collate(items):
    mels, labels = zip(*items)
    lengths = torch.tensor([m.shape[0] for m in mels])
    return pad_sequence(mels, batch_first=True), lengths, torch.stack(labels)


class FrameBudgetBatchSampler(Sampler):
    """Length-sorted batches holding at most `max_frames` padded frames each.

    Every rank computes the same list of batches and takes its own slice of it.
    """

    def __init__(self, rows, max_frames, max_len, rank, world_size, seed=0):
        self.rank, self.world_size = rank, world_size
        self.seed, self.epoch = seed, 0
        usable = [i for i, r in enumerate(rows) if r[1] <= max_len]
        usable.sort(key=lambda i: rows[i][1])
        self.batches = self._pack(usable, rows, max_frames)

    @staticmethod
    def _pack(order, rows, max_frames):
        batches, current = [], []
        for i in order:
            if current and rows[i][1] * (len(current) + 1) > max_frames:
                batches.append(current)
                current = []
            current.append(i)
        if current:
            batches.append(current)
        return batches

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.batches) // self.world_size

    def __iter__(self):
        order = list(self.batches)
        random.Random(self.seed + self.epoch).shuffle(order)
        mine = order[self.rank::self.world_size]
        yield from mine
