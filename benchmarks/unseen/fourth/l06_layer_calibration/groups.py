import contextlib
from datetime import timedelta

import torch.distributed as dist


@contextlib.contextmanager
def long_section(minutes):
    """A section that may be slow; closes with a rendezvous of generous patience."""
    group = dist.new_group(backend="gloo", timeout=timedelta(minutes=minutes))
    try:
        yield group
    finally:
        dist.barrier(group=group)
        dist.destroy_process_group(group)


def partition(items, rank, per_rank):
    start = rank * per_rank
    return items[start:start + per_rank]
