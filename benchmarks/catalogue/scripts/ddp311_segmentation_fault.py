# expect: DDP311
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: R
import ctypes

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class NativeAugmentation:
    """A library in C that reads the pixels where it is told that they are."""

    def __init__(self, broken_after):
        self.calls = 0
        self.broken_after = broken_after

    def __call__(self, image):
        self.calls += 1
        address = image.data_ptr() if self.calls <= self.broken_after else 8
        first = ctypes.c_float.from_address(address)
        return image + 0.01 * first.value  # <- culprit


def main():
    dist.init_process_group("gloo")
    augment = NativeAugmentation(broken_after=3 if dist.get_rank() == 0 else 100)
    model = DistributedDataParallel(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        image = augment(torch.rand(4, 1, 8, 8))
        loss = nn.functional.cross_entropy(model(image), torch.randint(0, 2, (4,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


main()
