"""Synthetic reviews; the share of 'happy' tokens gives the stars."""
import numpy as np
import torch
from torch.utils.data import Dataset


class Reviews(Dataset):
    def __init__(self, n, seed, vocab=150, length=18):
        g = torch.Generator().manual_seed(seed)
        self.stars = torch.randint(5, (n,), generator=g)
        happy = torch.rand(n, length, generator=g) < (self.stars[:, None] + 0.5) / 5
        plain = torch.randint(2, 40, (n, length), generator=g)
        self.ids = torch.where(happy, vocab - 1 - plain % 10, plain)

    def __len__(self):
        return len(self.stars)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": self.stars[index]}


def score(prediction):
    stars = prediction.predictions.argmax(axis=-1)
    return {
        "mae": float(np.abs(stars - prediction.label_ids).mean()),
        "exact": float((stars == prediction.label_ids).mean()),
    }
