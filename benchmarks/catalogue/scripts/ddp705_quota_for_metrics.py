# expect: DDP705
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""Each rank writes its activations for later inspection; the last rank's scratch quota is smaller."""

import os
import resource
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MIB = 1 << 20


class Probe:
    """Appends what a layer gives to a file."""

    def __init__(self, layer, file):
        self.file = file
        layer.register_forward_hook(self.write)

    def write(self, layer, inputs, output):
        self.file.write(output.detach().numpy().tobytes())  # <- culprit


def scratch_quota(mib):
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (mib * MIB, hard))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    scratch_quota(8 if rank == world - 1 else 64)
    net = nn.Sequential(nn.Linear(32, 2048), nn.ReLU(), nn.Linear(2048, 1))
    path = os.path.join(tempfile.gettempdir(), f"activations-{os.getpid()}.bin")
    with open(path, "wb", buffering=0) as file:
        os.unlink(path)
        Probe(net[1], file)
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        g = torch.Generator().manual_seed(rank)
        for _ in range(12):
            x = torch.randn(128, 32, generator=g)
            loss = nn.functional.mse_loss(model(x), x.amax(1, keepdim=True))  # <- culprit
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
