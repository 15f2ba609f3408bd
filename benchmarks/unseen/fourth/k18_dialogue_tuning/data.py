import random

import torch
from torch.utils.data import Dataset

VOCAB = 80
LENGTH = 20


def load_dialogues(n=700):
    """Token ids of the exported dialogues, in the order of the export."""
    rng = random.Random(0)
    rows = []
    for i in range(n):
        topic = rng.randrange(8)
        rows.append({"id": i, "topic": topic, "ids": [(topic * 9 + rng.randrange(12)) % VOCAB for _ in range(LENGTH)]})
    return rows


def preview(rows, k=3):
    for row in random.sample(rows, k):
        print(f"sample {row['id']} topic {row['topic']}: {row['ids'][:8]} ...")


def split(rows, n_train, n_eval):
    rows = list(rows)
    random.shuffle(rows)
    return rows[:n_train], rows[n_train:n_train + n_eval]


class Dialogues(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids = torch.tensor(self.rows[i]["ids"])
        return {"input_ids": ids, "labels": ids.clone()}
