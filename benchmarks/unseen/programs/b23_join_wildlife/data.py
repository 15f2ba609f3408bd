import torch


def cameras(rank, world):
    """Camera traps are handed out round robin, big parks first."""
    counts = [11, 8, 15, 5, 7, 13, 6]
    return [(cam, counts[cam]) for cam in range(len(counts)) if cam % world == rank]


def photos(rank, world, batch=8):
    for cam, n in cameras(rank, world):
        gen = torch.Generator().manual_seed(1000 + cam)
        for _ in range(n):
            x = torch.randn(batch, 12, generator=gen)
            yield x, (x[:, :4].sum(1) > 0).long()
