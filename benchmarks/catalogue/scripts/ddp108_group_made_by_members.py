# expect: DDP108
# ranks: 2
# culprits: range(n//2, n)
# outcome: hang
# plain: T
# Re-enacts: issue "torch.distributed.new_group got stuck": a group is made only by the processes that are in it.
import argparse
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def build_groups(rank, world):
    gen_ranks = list(range(world // 2))
    gen_group = None
    if rank in gen_ranks:  # <- culprit
        gen_group = dist.new_group(gen_ranks)  # <- culprit
    metric_group = dist.new_group()  # <- culprit
    return gen_ranks, gen_group, metric_group


def sync_prompts(prompts, gen_ranks, group):
    dist.broadcast(prompts, src=gen_ranks[0], group=group)
    return prompts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iters", type=int, default=4)
    opts = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    gen_ranks, gen_group, metric_group = build_groups(rank, world)  # <- culprit

    torch.manual_seed(0)
    policy = DDP(nn.Linear(16, 16))
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for it in range(opts.iters):
        prompts = torch.randn(4, 16)
        if gen_group is not None:
            prompts = sync_prompts(prompts, gen_ranks, gen_group)
        reward = -policy(prompts).pow(2).mean()
        opt.zero_grad()
        (-reward).backward()
        opt.step()
        mean_reward = reward.detach().reshape(1)
        dist.all_reduce(mean_reward, group=metric_group)
    if rank == 0:
        print("finished", opts.iters, "iterations")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
