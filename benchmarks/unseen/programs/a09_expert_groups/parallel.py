from __future__ import annotations

from dataclasses import dataclass, field

import torch.distributed as dist


@dataclass
class Topology:
    num_experts: int
    world: int = field(default_factory=dist.get_world_size)
    rank: int = field(default_factory=dist.get_rank)

    def assignment(self) -> dict[int, list[int]]:
        per_rank = -(-self.num_experts // self.world)
        return {r: list(range(self.num_experts))[r * per_rank:(r + 1) * per_rank] for r in range(self.world)}


@dataclass
class ExpertContext:
    local: list[int]
    group: dist.ProcessGroup | None = None

    @property
    def active(self):
        return self.group is not None


def build_expert_context(topology: Topology) -> ExpertContext:
    table = topology.assignment()
    mine = table[topology.rank]
    if not mine:
        return ExpertContext(local=[])
    members = [r for r, experts in table.items() if experts]
    group = dist.new_group(members)
    return ExpertContext(local=mine, group=group)
