import pickle

import torch
import torch.distributed as dist


def gather_rows(rows):
    """All rows of all ranks, although every rank may hold another number of them."""
    world = dist.get_world_size()
    sizes = [torch.zeros(1, dtype=torch.long) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(rows)]))
    sizes = [int(s) for s in sizes]
    longest = max(sizes)
    padded = rows.new_zeros(longest, *rows.shape[1:])
    padded[:len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    return torch.cat([p[:n] for p, n in zip(parts, sizes)])


def gather_any(obj):
    raw = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    world, rank = dist.get_world_size(), dist.get_rank()
    sizes = [torch.zeros(1, dtype=torch.long) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([raw.numel()]))
    out = []
    for src in range(world):
        buf = raw if src == rank else torch.empty(int(sizes[src]), dtype=torch.uint8)
        dist.broadcast(buf, src=src)
        out.append(pickle.loads(buf.numpy().tobytes()))
    return out
