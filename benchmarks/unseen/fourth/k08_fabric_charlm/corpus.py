import random
from pathlib import Path

import torch

WORDS = "the a model trains on data with many small steps and then stops for tests".split()


def write_corpus(path, n_words=4000, seed=0):
    rng = random.Random(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    tmp = path.with_suffix(".tmp")
    tmp.write_text(" ".join(rng.choice(WORDS) for _ in range(n_words)))
    tmp.rename(path)


class CharCorpus:
    def __init__(self, path, block=32):
        text = Path(path).read_text()
        self.chars = sorted(set(text))
        lookup = {c: i for i, c in enumerate(self.chars)}
        self.ids = torch.tensor([lookup[c] for c in text])
        self.block = block

    def __len__(self):
        return (len(self.ids) - 1) // self.block

    def __getitem__(self, i):
        s = i * self.block
        return self.ids[s:s + self.block], self.ids[s + 1:s + self.block + 1]
