# expect: DDP603
# ranks: 2 4
# culprits: range(1, n)
# outcome: crash
# plain: E
"""The first rank writes the initial weights, everybody reads them, and nobody waits."""

import os
import tempfile
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def experiment_folder():
    name = [tempfile.mkdtemp(prefix="experiment-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(name, src=0)
    return name[0]


def initial_weights(model):
    """Orthogonal initialisation, and a fingerprint of it for the log."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.orthogonal_(parameter)
    fingerprint = 0
    for _ in range(6000):
        for parameter in model.parameters():
            fingerprint = zlib.crc32(parameter.detach().numpy().tobytes(), fingerprint)
    return fingerprint


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = os.path.join(experiment_folder(), "initial.pt")
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 4))
    if rank == 0:
        print("fingerprint", initial_weights(model), flush=True)
        torch.save(model.state_dict(), path)
    model.load_state_dict(torch.load(path))  # <- culprit
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for _ in range(4):
        x = torch.randn(8, 128, generator=g)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
