import random

import torch
import torch.distributed as dist


def seed_all(seed):
    random.seed(seed)
    torch.manual_seed(seed)


class Runtime:
    def __init__(self, seed):
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        # neighbour sampling and dropout should not be the same everywhere
        seed_all(seed + self.rank)

    def mean(self, value):
        t = torch.tensor([float(value)])
        dist.all_reduce(t)
        return (t / self.world).item()

    def close(self):
        dist.barrier()
        dist.destroy_process_group()
