"""A synthetic citation graph with a fixed train / test mask and per-process loading of seed nodes."""
import torch
from torch.utils.data import DataLoader


class CitationGraph:
    def __init__(self, nodes=480, dim=16, classes=4):
        g = torch.Generator().manual_seed(3)
        self.y = torch.randint(0, classes, (nodes,), generator=g)
        centre = torch.randn(classes, dim, generator=g)
        self.x = centre[self.y] + 1.5 * torch.randn(nodes, dim, generator=g)
        same = self.y[:, None] == self.y[None, :]
        chance = torch.where(same, 0.04, 0.005)
        adj = torch.rand(nodes, nodes, generator=g) < chance
        self.adj = adj | adj.T
        self.train_mask = torch.rand(nodes, generator=g) < 0.6

    def neighbours(self, seeds, fanout):
        """Row-normalised adjacency of the sampled neighbours of every seed node."""
        keep = torch.rand(len(seeds), len(self.y)) * self.adj[seeds]
        top = keep.topk(fanout, dim=1)
        w = torch.zeros_like(keep).scatter_(1, top.indices, (top.values > 0).float())
        return w / w.sum(1, keepdim=True).clamp(min=1)


def seed_node_loader(graph, rank, world, batch_size):
    train_idx = graph.train_mask.nonzero(as_tuple=False).view(-1)
    train_idx = train_idx[torch.randperm(train_idx.numel())]
    per_rank = train_idx.numel() // world
    mine = train_idx.split(per_rank)[rank]
    return DataLoader(mine, batch_size=batch_size, shuffle=True, drop_last=True)
