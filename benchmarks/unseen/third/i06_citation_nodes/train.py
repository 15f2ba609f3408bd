import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from graph import CitationGraph, seed_node_loader
from runtime import Runtime


class Sage(nn.Module):
    def __init__(self, dim, hid, classes):
        super().__init__()
        self.own, self.nbr = nn.Linear(dim, hid), nn.Linear(dim, hid, bias=False)
        self.drop, self.out = nn.Dropout(0.2), nn.Linear(hid, classes)

    def forward(self, x_own, x_nbr):
        return self.out(self.drop(F.relu(self.own(x_own) + self.nbr(x_nbr))))


@torch.no_grad()
def test_accuracy(net, graph, rank, world):
    net.eval()
    idx = (~graph.train_mask).nonzero().view(-1)[rank::world]
    full = graph.adj[idx].float()
    full = full / full.sum(1, keepdim=True).clamp(min=1)
    acc = (net(graph.x[idx], full @ graph.x).argmax(-1) == graph.y[idx]).float().mean()
    net.train()
    return acc


def main():
    rt = Runtime(seed=123)
    graph = CitationGraph()
    loader = seed_node_loader(graph, rt.rank, rt.world, batch_size=16)
    model = DDP(Sage(graph.x.shape[1], 32, 4))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(4):
        total = 0.0
        for seeds in loader:
            w = graph.neighbours(seeds, fanout=6)
            loss = F.cross_entropy(model(graph.x[seeds], w @ graph.x), graph.y[seeds])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        loss, acc = rt.mean(total / len(loader)), rt.mean(test_accuracy(model.module, graph, rt.rank, rt.world))
        if rt.rank == 0:
            print(f"epoch {epoch} loss {loss:.4f} test acc {acc:.3f}", flush=True)
    rt.close()


if __name__ == "__main__":
    main()
