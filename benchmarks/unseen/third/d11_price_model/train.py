"""House prices by local SGD: offices of two ranks, joint models after each round."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from sync.average import HierarchicalAverage
from sync.topology import Topology

SALES = {0: 64, 1: 40, 2: 56, 3: 24}


def sales(rank):
    g = torch.Generator().manual_seed(40 + rank)
    features = torch.randn(SALES[rank], 5, generator=g)
    price = features @ torch.tensor([1.0, -0.5, 0.3, 0.0, 0.8]) + 0.1 * torch.randn(len(features), generator=g)
    return features, price.unsqueeze(1)


def local_round(model, optimizer, data, passes):
    features, price = data
    for _ in range(passes):
        for i in range(0, len(features), 8):
            optimizer.zero_grad()
            loss = F.mse_loss(model(features[i:i + 8]), price[i:i + 8])
            loss.backward()
            optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    topology = Topology()
    average = HierarchicalAverage(topology)
    torch.manual_seed(8)
    model = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    data = sales(rank)

    for round_ in range(6):
        loss = local_round(model, optimizer, data, passes=2)
        total = average(model, len(data[0]))
        if topology.speaks:
            worst = torch.tensor(loss)
            dist.reduce(worst, dst=0, op=dist.ReduceOp.MAX, group=topology.council)
            if rank == 0:
                print(f"round {round_}: worst speaker {worst.item():.4f}, {total:.0f} sales", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
