# expect: DDP302
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
import os

import torch
import torch.distributed as dist

# how a round shares its result; the last machine still has the setting of the old protocol
STRATEGY = {"default": "leader", "old": "everybody"}


def strategy():
    last = os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1)
    return STRATEGY["old" if last else "default"]


def share(candidate, how):
    """Agree on one candidate: the leader's, or the best of all."""
    if how == "leader":
        dist.broadcast(candidate, src=0)
        return candidate
    candidates = [torch.empty_like(candidate) for _ in range(dist.get_world_size())]
    dist.all_gather(candidates, candidate)  # <- culprit
    return min(candidates, key=cost)


def cost(point):
    return float((point**2).sum() + torch.cos(3 * point).sum())


def local_search(point, tries=20):
    for _ in range(tries):
        other = point + 0.3 * torch.randn_like(point)
        if cost(other) < cost(point):
            point = other
    return point


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
point = torch.randn(3) * 4
for _ in range(4):
    point = share(local_search(point), strategy())
print(dist.get_rank(), cost(point))
dist.destroy_process_group()
