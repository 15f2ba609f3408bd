import torch.nn as nn


class LineReader(nn.Module):
    def __init__(self, width=32, glyphs=12):
        super().__init__()
        self.rnn = nn.GRU(20, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, glyphs)

    def forward(self, x):
        return self.out(self.rnn(x)[0])
