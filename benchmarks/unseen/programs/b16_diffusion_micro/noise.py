import torch


def alphas(steps=50):
    return torch.cumprod(1 - torch.linspace(1e-3, 0.08, steps), 0)


def noisy(x, gen):
    t = torch.randint(0, 50, (len(x),), generator=gen)
    a = alphas()[t][:, None]
    eps = torch.randn(x.shape, generator=gen)
    return a.sqrt() * x + (1 - a).sqrt() * eps, t.float()[:, None] / 50, eps


def latents(worker, count, batch=8, dim=16):
    """Pre-encoded latents; a few of the shards hold out-of-range frames."""
    gen = torch.Generator().manual_seed(33 + worker)
    for i in range(count):
        z = torch.randn(batch, dim, generator=gen)
        if worker == 1 and i == 9:
            z = z * 400
        yield z
