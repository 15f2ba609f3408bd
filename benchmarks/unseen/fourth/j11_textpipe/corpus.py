import torch


def batches(n, size, length, seed):
    gen = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 50, (n, length), generator=gen)
    target = (tokens.float().mean(1) / 50).unsqueeze(1)
    yield from zip(tokens.split(size), target.split(size))
