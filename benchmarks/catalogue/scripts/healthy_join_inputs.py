# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: answer to the uneven-inputs threads: the processes have different amounts of data and train under Join.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


def inputs(rank):
    g = torch.Generator().manual_seed(rank)
    return [torch.randn(4, 6, generator=g) for _ in range(5 + 2 * rank)]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    n = 0
    with Join([model]):
        for x in inputs(rank):
            loss = (model(x) - x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            n += 1
    print(f"rank {rank}: {n} batches", flush=True)
    dist.barrier()
    dist.destroy_process_group()
