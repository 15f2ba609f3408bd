import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

from data import cameras, photos


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} reads cameras {[c for c, _ in cameras(rank, world)]}")
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    steps = 0
    with Join([model]):
        for x, y in photos(rank, world):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            steps += 1
            if rank % 2 and steps % 10 == 0:
                print(f"rank {rank} step {steps} loss {loss.item():.4f}")
    for p in model.module.parameters():
        dist.broadcast(p.data, src=max(range(world), key=lambda r: sum(n for _, n in cameras(r, world))))
    totals = torch.tensor([float(steps)])
    dist.all_reduce(totals)
    if rank == 0:
        print(f"{int(totals.item())} batches in all")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
