"""Writes what a training has made to a file, as pickles; with a second argument, reads it without ddpnb."""

import pickle
import sys
import time

if reads := len(sys.argv) > 2:
    sys.modules["ddpnb"] = None

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    def forward(self, x):
        return self.layers(x)


def write(path):
    torch.manual_seed(0)
    module = Model()
    model = DistributedDataParallel(module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer, [torch.optim.lr_scheduler.ConstantLR(optimizer), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)], [2],
    )
    scaler = torch.amp.GradScaler("cpu")
    data = TensorDataset(torch.arange(32.0).reshape(8, 4))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=2, sampler=sampler)
    for (x,) in loader:
        optimizer.zero_grad()
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
    functions = [dist.all_reduce, dist.new_group, torch.save, torch.load, torch.compile, nn.utils.clip_grad_norm_, Model.forward]
    made = [model, module, optimizer, scheduler, scaler, sampler, loader, functions, model.state_dict(), optimizer.state_dict()]
    torch.save(made, f"{path}.pt")
    with open(f"{path}.pickle", "wb") as file:
        pickle.dump(made, file)
    return made


def show(model, module, optimizer, scheduler, scaler, sampler, loader, functions, *states):
    print([parameter.sum().item().hex() for one in (model, module) for parameter in one.parameters()])
    print(len(states[0]), len(states[1]["state"]), scheduler.state_dict()["last_epoch"], scaler.state_dict(), len(sampler))
    print([function.__qualname__ for function in functions], [x.tolist() for (x,) in loader])
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    print([parameter.sum().item().hex() for parameter in model.parameters()], flush=True)


if reads:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    for read in (lambda: torch.load(f"{sys.argv[1]}.pt", weights_only=False), lambda: pickle.load(open(f"{sys.argv[1]}.pickle", "rb"))):
        show(*read())
else:
    dist.init_process_group("gloo")
    show(*write(f"rank{dist.get_rank()}"))
time.sleep(0.5)  # gloo's threads let go of the last tensors: an interpreter that ends meanwhile is aborted
dist.destroy_process_group()
