import torch
import torch.distributed as dist


@torch.no_grad()
def validation_accuracy(net, g):
    """Accuracy over the validation nodes, of which each rank scores its part."""
    rank, world = dist.get_rank(), dist.get_world_size()
    nodes = g.valid_nodes[rank::world]
    net.eval()
    right = (net(g.features, g.adjacency)[nodes].argmax(1) == g.labels[nodes]).sum()
    net.train()
    tally = torch.tensor([right.item(), len(nodes)], dtype=torch.float64)
    dist.reduce(tally, dst=0)
    return (tally[0] / tally[1]).item()
