# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""A sharded model whose full state is gathered by all ranks, and written by the first."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def save(model, path):
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        torch.save(state, path)
        print(f"{len(state)} tensors, {os.path.getsize(path)} bytes", flush=True)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 12))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for _ in range(5):
        x = torch.randn(6, 12)
        loss = nn.functional.mse_loss(model(x), x.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        save(model, os.path.join(folder, "full.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
