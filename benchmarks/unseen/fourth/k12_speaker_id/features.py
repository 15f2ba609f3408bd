import torch
from torch.utils.data import Dataset

N_MELS = 20


class Utterances(Dataset):
    """Mean and variance of the mel features of one utterance, and its speaker."""

    def __init__(self, n, n_speakers=8, seed=0):
        g = torch.Generator().manual_seed(seed)
        voices = torch.randn(n_speakers, N_MELS, generator=g)
        self.labels = torch.randint(0, n_speakers, (n,), generator=g)
        frames = voices[self.labels].unsqueeze(1) + torch.randn(n, 30, N_MELS, generator=g)
        self.features = torch.cat([frames.mean(1), frames.var(1)], 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.features[i], self.labels[i]
