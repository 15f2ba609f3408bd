import torch
import torch.distributed as dist


def _shift(tensor, out, right, left):
    """Hand `tensor` to the right, take `out` from the left. The isend keeps the ring from locking."""
    sending = dist.isend(tensor, dst=right)
    dist.recv(out, src=left)
    sending.wait()
    return out


def rotate_banks(bank, dim):
    """Yields (origin, bank) for every rank, one's own first. Banks may differ in length."""
    rank, world = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world, (rank - 1) % world
    current = bank
    yield rank, current
    for hop in range(1, world):
        rows = _shift(torch.tensor([len(current)]), torch.zeros(1, dtype=torch.int64), right, left)
        current = _shift(current, torch.empty(int(rows), dim), right, left)
        yield (rank - hop) % world, current
