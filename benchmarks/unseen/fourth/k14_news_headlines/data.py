import json
import random
import time

import torch
from torch.utils.data import Dataset

TOPICS = ("sport", "politics", "science")


def build_cache(path, n=391, seed=0):
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        topic = rng.randrange(len(TOPICS))
        tokens = [rng.randrange(40) + (30 * topic if rng.random() < 0.6 else 0) for _ in range(rng.randint(4, 12))]
        rows.append({"tokens": tokens, "topic": topic})
    time.sleep(1.5)
    with open(path, "w") as f:
        json.dump(rows, f)


class Headlines(Dataset):
    def __init__(self, path, part):
        with open(path) as f:
            rows = json.load(f)
        self.rows = rows[60:] if part == "train" else rows[:60]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    ids = torch.cat([torch.tensor(r["tokens"]) for r in rows])
    offsets = torch.tensor([0] + [len(r["tokens"]) for r in rows[:-1]]).cumsum(0)
    return ids, offsets, torch.tensor([r["topic"] for r in rows])
