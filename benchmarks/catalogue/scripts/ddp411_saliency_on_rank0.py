# expect: DDP411
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
"""Rank 0 computes a saliency map with the wrapped model between two training steps."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Saliency:
    """Gradient of the best class with respect to the picture."""

    def __init__(self, model):
        self.model = model

    def __call__(self, image):
        image = image.clone().requires_grad_()
        score = self.model(image[None]).max()  # <- culprit
        score.backward()  # <- culprit
        return image.grad.abs().sum(0)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 5))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    saliency = Saliency(model)
    torch.manual_seed(rank)
    for step in range(6):
        x, y = torch.randn(4, 3, 6, 6), torch.randint(0, 5, (4,))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step == 3 and rank == 0:  # <- culprit
            print("strongest pixel", saliency(x[0]).argmax().item())  # <- culprit
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
