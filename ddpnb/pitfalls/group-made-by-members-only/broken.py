"""Workers collect rewards and average them; rank 0 keeps the baseline."""

import torch
import torch.distributed as dist


def collect(generator, step, group):
    reward = torch.randn(8, generator=generator).mean(0, keepdim=True) + 0.5 * step
    dist.all_reduce(reward, group=group)
    return reward / dist.get_world_size(group)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    workers = list(range(1, dist.get_world_size()))
    if rank in workers:
        worker_group = dist.new_group(workers)
    all_group = dist.new_group()
    baseline = torch.zeros(1)
    for step in range(8):
        reward = torch.zeros(1)
        if rank in workers:
            reward = collect(generator, step, worker_group)
        dist.broadcast(reward, src=workers[0], group=all_group)
        if rank == 0:
            baseline.lerp_(reward, 0.2)
            print(f"step {step}: reward {reward.item():.3f}, baseline {baseline.item():.3f}")
        dist.broadcast(baseline, src=0, group=all_group)
    dist.destroy_process_group()


main()
