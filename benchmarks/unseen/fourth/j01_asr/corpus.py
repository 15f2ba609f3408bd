"""Synthetic utterances: feature frames and a transcript each."""
import random

import torch

ALPHABET = {c: i + 1 for i, c in enumerate("abcdefghijklmnopqrstuvwxyz '")}
WORDS = ("left right stop go cafe radio lamp window kettle don't seven eight "
         "music louder quiet").split()


def make_corpus(n, seed=5):
    rng = random.Random(seed)
    gen = torch.Generator().manual_seed(seed)
    corpus = []
    for i in range(n):
        text = " ".join(rng.choice(WORDS) for _ in range(3))
        if i == 37:
            text = text.replace("e", "é") + " café"
        frames = torch.randn(len(text) * 3, 20, generator=gen)
        corpus.append({"id": f"utt{i:04d}", "frames": frames, "text": text})
    return corpus


def encode(text):
    return torch.tensor([ALPHABET[c] for c in text])


def collate(items):
    frames = torch.nn.utils.rnn.pad_sequence([u["frames"] for u in items])
    n_frames = torch.tensor([len(u["frames"]) for u in items])
    labels = [encode(u["text"]) for u in items]
    n_labels = torch.tensor([len(x) for x in labels])
    return frames, n_frames, torch.cat(labels), n_labels


class Shard:
    def __init__(self, corpus, rank, world, batch):
        self.items = corpus[rank::world]
        self.batch = batch

    def batches(self, epoch):
        order = list(range(0, len(self.items), self.batch))
        random.Random(epoch).shuffle(order)
        for start in order:
            yield collate(self.items[start:start + self.batch])
