import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from graph.build import citation_graph
from graph.hooks import Hooks, default_hooks
from graph.model import GCN


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    g = citation_graph()
    model = DDP(GCN(g.features.shape[1], 16, g.n_classes))
    optim = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    mine = g.train_nodes[rank::world]
    usable = len(g.train_nodes) // world

    hooks = Hooks()
    default_hooks(hooks, model, g, lead=rank == 0)
    for epoch in range(20):
        pick = mine[:usable]
        out = model(g.features, g.adjacency)[pick]
        loss = torch.nn.functional.cross_entropy(out, g.labels[pick])
        optim.zero_grad()
        loss.backward()
        optim.step()
        hooks.emit("epoch_end", epoch=epoch, loss=loss.item())
    hooks.emit("train_end")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
