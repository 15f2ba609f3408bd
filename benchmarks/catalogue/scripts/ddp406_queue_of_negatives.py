# expect: DDP406
# ranks: 2 4
# culprits: any
# outcome: divergence
# plain: S
"""Contrastive learning with a queue of negatives that is filled without gathering the keys of the other ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Contrast(nn.Module):
    def __init__(self, dim=8, queue=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, dim))
        self.register_buffer("queue", F.normalize(torch.randn(queue, dim), dim=1))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def enqueue(self, keys):
        start = int(self.pointer)
        self.queue[start : start + len(keys)] = keys  # <- culprit
        self.pointer[0] = (start + len(keys)) % len(self.queue)

    def forward(self, a, b):
        q, k = F.normalize(self.encoder(a), dim=1), F.normalize(self.encoder(b), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        logits = torch.cat([positive, q @ self.queue.clone().T], 1) / 0.2
        self.enqueue(k)  # <- culprit
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


class Pretraining:
    def __init__(self, options):
        torch.manual_seed(0)
        self.model = DDP(Contrast(), **options)  # <- culprit
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        torch.manual_seed(dist.get_rank())

    def epoch(self, steps):
        for _ in range(steps):
            x = torch.randn(8, 12)
            loss = self.model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def main():
    dist.init_process_group("gloo")
    Pretraining({"broadcast_buffers": False}).epoch(9)  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
