import os

import torch
import torch.distributed as dist


class SparsifyState:
    def __init__(self, keep=0.25, group=None):
        self.keep = keep
        self.group = group
        self.calls = 0


def sparse_average_hook(state, bucket):
    """Keeps the large entries of a bucket to save optimizer work on slow hosts."""
    state.calls += 1
    world = dist.get_world_size(state.group)
    buf = bucket.buffer().div_(world)
    fut = dist.all_reduce(buf, group=state.group, async_op=True).get_future()

    def finish(f):
        avg = f.value()[0]
        k = max(1, int(avg.numel() * state.keep))
        cut = avg.abs().topk(k).values[-1]
        return torch.where(avg.abs() >= cut, avg, torch.zeros_like(avg))

    return fut.then(finish)


LINKS = {0: "ib", 1: "eth"}


def setup_comm(model):
    link = LINKS[int(os.environ["LOCAL_RANK"]) % 2]
    if link == "eth":
        model.register_comm_hook(SparsifyState(), sparse_average_hook)
    return model
