# expect: DDP605
# also: DDP301
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
"""Full state dict of a sharded model by the checkpoint API, every few steps."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class Checkpointer:
    def __init__(self, folder, every):
        self.folder, self.every = folder, every

    def maybe_save(self, model, step):
        if step % self.every:
            return
        if dist.get_rank() == 0:  # <- culprit
            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            state = get_model_state_dict(model, options=options)  # <- culprit
            torch.save(state, os.path.join(self.folder, f"{step}.pt"))
        dist.barrier()  # <- culprit


dist.init_process_group("gloo")
rank = dist.get_rank()
model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 10))
for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
checkpointer = Checkpointer(tempfile.gettempdir(), every=3)

torch.manual_seed(rank)
for step in range(1, 8):
    x = torch.randn(16, 10)
    loss = (model(x) - x.cumsum(1)).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    checkpointer.maybe_save(model, step)  # <- culprit

dist.destroy_process_group()
