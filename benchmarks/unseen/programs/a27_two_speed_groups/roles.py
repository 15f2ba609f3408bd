from dataclasses import dataclass

import torch.distributed as dist


@dataclass(frozen=True)
class Role:
    name: str
    members: tuple[int, ...]
    group: object
    rounds: int
    pause: float


def assign():
    rank, world = dist.get_rank(), dist.get_world_size()
    split = max(1, world // 2)
    table = {"actor": (tuple(range(split)), 9, 0.02), "learner": (tuple(range(split, world)), 3, 0.15)}
    mine = None
    for name, (members, rounds, pause) in table.items():
        group = dist.new_group(list(members))
        if rank in members:
            mine = Role(name, members, group, rounds, pause)
    everyone = dist.new_group(list(range(world)))
    return mine, everyone
