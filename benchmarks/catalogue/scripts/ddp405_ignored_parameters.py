# expect: DDP405
# ranks: 2 4
# culprits: any
# outcome: divergence
# plain: S
"""A large embedding table is kept out of DDP "to save communication", but it is trained."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Recommender(nn.Module):
    def __init__(self, items=200, dim=6):
        super().__init__()
        self.items = nn.Embedding(items, dim)
        self.score = nn.Sequential(nn.Linear(dim, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, ids):
        return self.score(self.items(ids).mean(1)).squeeze(1)


def wrap(net):
    DDP._set_params_and_buffers_to_ignore_for_model(net, ["items.weight"])  # <- culprit
    return DDP(net)  # <- culprit


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = Recommender()
    model = wrap(net)  # <- culprit
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(10):
        ids = torch.randint(0, 200, (16, 4), generator=g)
        clicked = torch.randint(0, 2, (16,), generator=g).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
