# expect: DDP413
# also: DDP312
# ranks: 2 4
# culprits: [0]
# outcome: crash
# plain: E
"""Small variational autoencoder with a preview of samples after every epoch."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class VAE(nn.Module):
    def __init__(self, d=12, z=3):
        super().__init__()
        self.z = z
        self.enc = nn.Linear(d, 2 * z)
        self.dec = nn.Sequential(nn.Linear(z, 16), nn.ReLU(), nn.Linear(16, d))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, -1)
        h = mu + torch.randn_like(mu) * (logvar / 2).exp()
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        return self.dec(h), kl

    def sample(self, n):
        return self.dec(torch.randn(n, self.z))


class Preview:
    def __init__(self, every=1, n=4, enabled=True):
        self.every, self.n, self.enabled = every, n, enabled

    @torch.no_grad()
    def on_epoch_end(self, net, epoch):
        if not self.enabled or epoch % self.every:
            return
        net.eval()
        grid = net.sample(self.n)  # <- culprit
        net.train()
        print("preview", epoch, tuple(grid.shape), round(grid.std().item(), 3))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 12))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    net = VAE()
    if dist.get_world_size() > 1:
        net = DDP(net)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    preview = Preview(enabled=rank == 0)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            out, kl = net(x)
            loss = F.mse_loss(out, x) + 0.01 * kl
            opt.zero_grad()
            loss.backward()
            opt.step()
        preview.on_epoch_end(net, epoch)  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
