import torch.distributed as dist


def make_groups(world):
    """The first and the last stage share the embedding, hence its gradient."""
    return dist.new_group(sorted({0, world - 1}))
