"""FSDP2, tensor parallel layers and distributed checkpoints."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def say(*words):
    print(f"rank {dist.get_rank()}", *words, flush=True)


def shown(model):
    whole = (p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters())
    return [tensor.detach().double().sum().item().hex() for tensor in whole]


def train(model, optimizer, steps):
    for step in range(steps):
        torch.manual_seed(10 * step)
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        say(step, loss.item().hex())


dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (2,))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
train(model, optimizer, 4)
say(shown(model), [tuple(p.to_local().shape) for p in model.parameters()])

folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(folder)
states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
checkpoint.save(states, checkpoint_id=folder[0])
train(model, optimizer, 2)
checkpoint.load(states, checkpoint_id=folder[0])
set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
say(shown(model), sorted(os.listdir(folder[0])))

torch.manual_seed(0)
layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
parallel = parallelize_module(layers, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
train(parallel, torch.optim.SGD(parallel.parameters(), lr=0.1), 3)
say(shown(parallel))
time.sleep(0.5)  # gloo's threads let go of the last tensors: an interpreter that ends meanwhile is aborted
dist.destroy_process_group()
