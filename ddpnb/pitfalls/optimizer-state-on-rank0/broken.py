"""Resume a run: the weights and the state of the optimizer come from a checkpoint."""

import io

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def steps(model, optimizer, count):
    for _ in range(count):
        x = torch.randn(16, 8)
        loss = (model(x) - x.square().mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def checkpoint():
    """What an earlier job has left."""
    net = nn.Linear(8, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    steps(net, optimizer, 10)
    file = io.BytesIO()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    return torch.load(file)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    saved = checkpoint()
    torch.manual_seed(dist.get_rank())
    net = nn.Linear(8, 1)
    net.load_state_dict(saved["model"])
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    if dist.get_rank() == 0:
        optimizer.load_state_dict(saved["optimizer"])
    steps(model, optimizer, 8)
    dist.destroy_process_group()


main()
