# expect: DDP405
# ranks: 2 4
# culprits: any
# outcome: divergence
# plain: S
"""Training with noise on the weights (annealed), data augmentation seeded by the rank."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def perturb(model, scale):
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=scale)  # <- culprit


def augment(x):
    return x + 0.1 * torch.randn_like(x)


def main(steps=12):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(9, 18), nn.ELU(), nn.Linear(18, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x_all, y_all = torch.randn(128, 9), torch.randint(0, 5, (128,))
    mine = torch.arange(dist.get_rank(), 128, dist.get_world_size())
    torch.manual_seed(dist.get_rank())  # <- culprit
    for step in range(steps):
        pick = mine[torch.randint(0, len(mine), (8,))]
        loss = F.cross_entropy(model(augment(x_all[pick])), y_all[pick])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        perturb(model, 0.01 * 0.8**step)  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
