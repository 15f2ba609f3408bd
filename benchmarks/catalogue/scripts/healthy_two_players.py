# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""A small GAN on points of a ring: two wrapped models, two optimizers."""
import argparse
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Generator(nn.Sequential):
    def __init__(self, z=4):
        super().__init__(nn.Linear(z, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 2))


class Critic(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(2, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))


def ring(n, gen):
    a = torch.rand(n, generator=gen) * 6.2832
    return torch.stack([a.cos(), a.sin()], 1)


def bce(logits, value):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, value))


def train(args):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    g_model, d_model = DDP(Generator()), DDP(Critic())
    g_opt = torch.optim.Adam(g_model.parameters(), lr=2e-3, betas=(0.5, 0.99))
    d_opt = torch.optim.Adam(d_model.parameters(), lr=1e-3, betas=(0.5, 0.99))
    # every process draws its own points and its own noise
    local = torch.Generator().manual_seed(args.seed * 100 + rank)
    for step in range(args.steps):
        for _ in range(args.critic_steps):
            real = ring(args.batch, local)
            with torch.no_grad():
                fake = g_model(torch.randn(args.batch, 4, generator=local))
            d_opt.zero_grad(set_to_none=True)
            logits = d_model(torch.cat([real, fake]))
            d_loss = bce(logits[:args.batch], 0.9) + bce(logits[args.batch:], 0.0)
            d_loss.backward()
            d_opt.step()
        g_opt.zero_grad(set_to_none=True)
        fake = g_model(torch.randn(args.batch, 4, generator=local))
        # the critic only passes the gradient through here, its own gradients are thrown away
        g_loss = bce(d_model.module(fake), 1.0)
        g_loss.backward()
        g_opt.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: d {d_loss.item():.4f} g {g_loss.item():.4f}", flush=True)
    return g_model, d_model


def check(*models):
    for m in models:
        flat = nn.utils.parameters_to_vector(m.parameters()).detach()
        first = flat.clone()
        dist.broadcast(first, src=0)
        assert torch.equal(first, flat)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--critic-steps", type=int, default=2)
    p.add_argument("--seed", type=int, default=8)
    args = p.parse_args()
    dist.init_process_group("gloo")
    models = train(args)
    check(*models)
    if dist.get_rank() == 0:
        models[0].eval()
        with torch.no_grad():
            r = models[0].module(torch.randn(200, 4)).norm(dim=1)
        print(f"radius {r.mean():.3f} +- {r.std():.3f}", flush=True)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()
