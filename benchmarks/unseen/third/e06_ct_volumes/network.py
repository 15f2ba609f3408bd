import torch.nn as nn


class LesionNet(nn.Module):
    def __init__(self, slices=6):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(slices, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.head = nn.Linear(16, 1)

    def forward(self, volume):
        return self.head(self.body(volume)).squeeze(-1)
