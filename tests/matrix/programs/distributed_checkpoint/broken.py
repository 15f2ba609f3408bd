# command: torchrun --standalone --nproc_per_node=2 broken.py
# plain: hang
# outcome: hang
# expect: DDP605
# sides: 0 | 1
# remedy: dcp.save()
"""DDP with torch.distributed.checkpoint: saved by rank 0 alone."""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel


def save(model, optimizer, path):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=path)  # <- culprit


def load(model, optimizer, path):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)


def train(model, optimizer, steps):
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"step {step}: loss {mean.item():.6f}")


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())
    train(model, optimizer, 3)
    if dist.get_rank() == 0:
        save(model, optimizer, "checkpoint")
    train(model, optimizer, 2)
    load(model, optimizer, "checkpoint")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
