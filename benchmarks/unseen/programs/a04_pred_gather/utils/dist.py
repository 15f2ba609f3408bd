import os

import torch
import torch.distributed as dist


def setup():
    dist.init_process_group(backend="gloo")
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def concat_all_gather(tensor):
    """Performs all_gather on the given tensor and concatenates along dim 0."""
    bucket = [torch.ones_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(bucket, tensor.contiguous())
    return torch.cat(bucket, dim=0)


def reduce_mean(value):
    t = torch.as_tensor(float(value))
    dist.all_reduce(t)
    return t.item() / dist.get_world_size()
