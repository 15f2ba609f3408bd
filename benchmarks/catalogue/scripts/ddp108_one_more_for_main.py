# expect: DDP108
# also: DDP301 DDP302
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: T
"""The main process makes a group for checkpoints when it first saves one."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

_groups = {}


def group_for(purpose):
    if purpose not in _groups:
        _groups[purpose] = dist.new_group()  # <- culprit
    return _groups[purpose]


def save(model, step):
    if dist.get_rank() == 0:  # <- culprit
        state = {k: v.clone() for k, v in model.state_dict().items()}
        group = group_for("checkpoint")  # <- culprit
        print(f"step {step}: {len(state)} tensors, {dist.get_world_size(group)} processes")


def global_loss(loss):
    value = loss.detach().clone()
    dist.all_reduce(value, group=group_for("metrics"))
    return value.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(7, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        loss = model(torch.randn(5, 7)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step == 2:
            save(model.module, step)
        if step >= 3:
            global_loss(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
