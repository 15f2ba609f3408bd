# expect: DDP406
# ranks: 2 4
# culprits: any
# outcome: divergence
# plain: S
"""Vector quantisation; the codebook is a buffer that follows the local batch (moving average)."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Quantiser(nn.Module):
    def __init__(self, codes, dim, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("codebook", torch.randn(codes, dim))

    def forward(self, z):
        index = torch.cdist(z, self.codebook).argmin(1)
        if self.training:
            self.update(z.detach(), index)
        quantised = self.codebook[index]
        return z + (quantised - z).detach(), (z - quantised.detach()).pow(2).mean()

    @torch.no_grad()
    def update(self, z, index):
        for code in index.unique():
            mean = z[index == code].mean(0)
            self.codebook[code] = self.decay * self.codebook[code] + (1 - self.decay) * mean  # <- culprit


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(10, 4)
        self.quantiser = Quantiser(8, 4)
        self.decoder = nn.Linear(4, 10)

    def forward(self, x):
        z, commit = self.quantiser(self.encoder(x))
        return nn.functional.mse_loss(self.decoder(z), x) + 0.25 * commit


def run(steps=10):
    torch.manual_seed(0)
    model = DDP(VQ(), broadcast_buffers=False)  # <- culprit
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(12, 10))
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run()
    dist.destroy_process_group()
