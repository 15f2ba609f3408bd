import torch.nn as nn


class Acoustic(nn.Module):
    def __init__(self, n_mels, hidden, n_out):
        super().__init__()
        self.inp = nn.Linear(n_mels, hidden)
        self.rnn = nn.GRU(hidden, hidden)
        self.out = nn.Linear(hidden, n_out)

    def forward(self, frames):
        h, _ = self.rnn(self.inp(frames).relu())
        return self.out(h).log_softmax(-1)
