# expect: DDP413
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""Sentence encoder: the loop calls a method of the network that the wrapper does not have."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(40, 8)
        self.proj = nn.Linear(8, 8)

    def forward(self, a, b):
        return (self.encode(a) * self.encode(b)).sum(1)

    def encode(self, tokens):
        return nn.functional.normalize(self.proj(self.bag(tokens)), dim=1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Encoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        a, b = torch.randint(0, 40, (4, 6)), torch.randint(0, 40, (4, 6))
        loss = (1 - model(a, b)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 2:
            anchors = model.encode(a)  # <- culprit
            print("mean norm", anchors.norm(dim=1).mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
