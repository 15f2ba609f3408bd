import torch.nn as nn
import torch.nn.functional as F


class Downscaler(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.a = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.b = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x):
        x = F.interpolate(x, scale_factor=2)
        return x + self.b(F.relu(self.norm(self.a(x))))
