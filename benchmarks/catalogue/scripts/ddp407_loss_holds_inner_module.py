# expect: DDP407
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
# Re-enacts: pytorch forum "loss function holds model.module": the wrapped model is made but its forward is never called
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def unwrap(net):
    return net.module if hasattr(net, "module") else net


class Denoiser(nn.Module):
    sigma_data = 0.5

    def __init__(self, dim=6, width=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim + 1, width), nn.GELU(), nn.Linear(width, dim))

    def forward(self, x, sigma):
        c = (sigma ** 2 + self.sigma_data ** 2).rsqrt()
        return self.body(torch.cat([x * c, sigma.log() / 4], dim=1))


class EDMLoss:
    """Needs sigma_data of the network, which the wrapper does not have."""

    def __init__(self, net, p_mean=-1.2, p_std=1.2):
        self.net = unwrap(net)  # <- culprit
        self.p_mean, self.p_std = p_mean, p_std

    def __call__(self, x):
        sigma = (torch.randn(len(x), 1) * self.p_std + self.p_mean).exp()
        w = (sigma ** 2 + self.net.sigma_data ** 2) / (sigma * self.net.sigma_data) ** 2
        d = self.net(x + sigma * torch.randn_like(x), sigma)  # <- culprit
        return (w.clamp(max=20) * (d - x) ** 2).mean()


def infinite(x, batch, rank, world):
    epoch = 0
    while True:
        g = torch.Generator().manual_seed(epoch)
        order = torch.randperm(len(x), generator=g)[rank::world]
        for i in range(0, len(order) - batch + 1, batch):
            yield x[order[i:i + batch]]
        epoch += 1


def training_loop(kimg=6, batch=8):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = Denoiser()
    ddp = DistributedDataParallel(net)
    loss_fn = EDMLoss(ddp)  # <- culprit
    opt = torch.optim.Adam(ddp.parameters(), lr=2e-3)
    data = infinite(torch.randn(16 * world, 6), batch, rank, world)
    torch.manual_seed(100 + rank)
    for tick in range(kimg):
        loss = loss_fn(next(data))  # <- culprit
        opt.zero_grad(set_to_none=True)
        loss.backward()  # <- culprit
        opt.step()  # <- culprit
        if rank == 0:
            print(f"tick {tick} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    training_loop()
    dist.barrier()
    dist.destroy_process_group()
