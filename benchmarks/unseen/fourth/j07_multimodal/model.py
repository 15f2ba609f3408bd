import torch.nn as nn


class PostScorer(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.words = nn.Embedding(300, dim)
        self.mix = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))
        self.picture = nn.Sequential(nn.Linear(192, dim), nn.Tanh())

    def forward(self, words, pictures, where):
        h = self.words(words).mean(1)
        if len(where):
            h = h.index_add(0, where, self.picture(pictures))
        return self.mix(h)
