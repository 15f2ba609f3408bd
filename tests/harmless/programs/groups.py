"""1,000 sub-groups that are made, used and destroyed, and some that nobody destroys."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, total = dist.get_rank(), torch.zeros(1)
for number in range(1000):
    members = ([0, 1], [0], [1], [1, 0])[number % 4] if number % 40 < 4 else [number % 2]
    group = dist.new_group(members, group_desc=f"number {number}")
    if rank in members:
        value = torch.full((1,), float(rank + number))
        dist.all_reduce(value, group=group)
        total += value
        if number % 100:
            dist.destroy_process_group(group)
print(f"rank {rank}: {total.item().hex()}, {len(dist.distributed_c10d._world.pg_map)} groups are left", flush=True)
mesh = dist.init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))
dist.all_reduce(total, group=mesh["shard"].get_group())
print(f"rank {rank}: {total.item().hex()} {dist.get_process_group_ranks(mesh.get_group('shard'))}", flush=True)
time.sleep(0.5)  # gloo's threads let go of the last tensors: an interpreter that ends meanwhile is aborted
dist.destroy_process_group()
