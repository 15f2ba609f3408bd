import torch.nn as nn


class FaultNet(nn.Module):
    def __init__(self, channels=4, kinds=3):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(channels, 12, 5, padding=2), nn.ReLU(),
                                  nn.Conv1d(12, 12, 5, padding=2), nn.ReLU())
        self.head = nn.Linear(12, kinds)

    def forward(self, x):
        return self.head(self.conv(x).mean(-1))
