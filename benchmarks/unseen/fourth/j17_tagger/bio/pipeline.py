import torch
import torch.nn as nn

from .vocab import TagVocab


class Encoder:
    def __init__(self, vocab):
        self.vocab = vocab

    def batches(self, sentences, size):
        for i in range(0, len(sentences), size):
            part = sentences[i:i + size]
            words = torch.tensor([w for w, _ in part])
            tags = torch.tensor([self.vocab.encode(t) for _, t in part])
            yield words, tags


class Tagger(nn.Module):
    def __init__(self, n_words, n_tags, dim=24):
        super().__init__()
        self.embed = nn.Embedding(n_words, dim)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)
        self.out = nn.Linear(dim, n_tags)

    def forward(self, words):
        h = self.embed(words).transpose(1, 2)
        return self.out(self.conv(h).relu().transpose(1, 2))


def build(sentences):
    vocab = TagVocab.collect(sentences)
    return Encoder(vocab), Tagger(240, len(vocab))
