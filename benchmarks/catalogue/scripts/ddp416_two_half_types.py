# expect: DDP416
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Compressed gradients: bfloat16 on the machine whose card has it, float16 on the others."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def compress_to(dtype):
    """A hook that reduces in another type."""

    def hook(group, bucket):
        small = bucket.buffer().to(dtype).div_(group.size())
        future = dist.all_reduce(small, group=group, async_op=True).get_future()
        return future.then(lambda f: bucket.buffer().copy_(f.value()[0]))

    return hook


COMPRESSION = {"a100": compress_to(torch.bfloat16), "v100": compress_to(torch.float16)}  # <- culprit


class Trainer:
    def __init__(self, card):
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Conv1d(2, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6, 4)))
        self.model.register_comm_hook(dist.group.WORLD, COMPRESSION[card])  # <- culprit
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)

    def fit(self, steps):
        for _ in range(steps):
            x, y = torch.randn(4, 2, 8), torch.randint(0, 4, (4,))
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()  # <- culprit
            self.optimizer.step()


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
Trainer("a100" if rank == world - 1 else "v100").fit(6)  # <- culprit
dist.destroy_process_group()
