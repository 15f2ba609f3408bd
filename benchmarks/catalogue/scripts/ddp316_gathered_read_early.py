# expect: DDP316
# ranks: 2 4
# culprits: 0
# outcome: any
# plain: S
"""Contrastive training: embeddings of all processes are gathered; the main one also draws them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Gallery:
    def __init__(self):
        self.snapshots = []

    def draw(self, embeddings):
        self.snapshots.append(torch.cat(embeddings).mean(0))  # <- culprit


def gather(local):
    parts = [torch.zeros_like(local) for _ in range(dist.get_world_size())]
    return parts, dist.all_gather(parts, local, async_op=True)


def contrastive(local, everybody, temperature=0.2):
    logits = local @ everybody.T / temperature
    start = dist.get_rank() * len(local)
    return nn.functional.cross_entropy(logits, torch.arange(start, start + len(local)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gallery = Gallery()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        x = torch.randn(12, 10)
        local = nn.functional.normalize(model(x), dim=1)
        parts, work = gather(local.detach())
        if rank == 0:
            gallery.draw(parts)  # <- culprit
        work.wait()
        loss = contrastive(local, torch.cat(parts))
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
