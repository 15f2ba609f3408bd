import os
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Slot:
    node: int
    device: int
    rank: int
    world: int


def discover():
    local = int(os.environ["LOCAL_RANK"])
    node = int(os.environ.get("GROUP_RANK", 0))
    per_node = torch.cuda.device_count() or min(2, os.cpu_count() or 2)
    device = local % per_node
    return Slot(node=node, device=device, rank=node * per_node + device, world=int(os.environ["WORLD_SIZE"]))


def connect(slot):
    dist.init_process_group("gloo", rank=slot.rank, world_size=slot.world)
    dist.barrier()
    return slot
