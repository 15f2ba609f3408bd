import torch


class Passages:
    def __init__(self, rank, n):
        gen = torch.Generator().manual_seed(rank)
        self.text = torch.randn(n, 24, generator=gen)
        self.query = self.text + 0.5 * torch.randn(n, 24, generator=gen)
