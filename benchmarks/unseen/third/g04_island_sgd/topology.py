"""Which ranks share a fast link. The spare rank of an odd world forms the small island."""
import torch.distributed as dist


def islands(world):
    size = (world + 1) // 2
    tail = list(range(world - size, world))
    head = list(range(world - size))
    return [tail, head]


def open_islands(world):
    for members in islands(world):
        yield members, dist.new_group(members)


def join_island(rank, world):
    """The group of the island to which `rank` belongs."""
    return next(group for members, group in open_islands(world) if rank in members)
