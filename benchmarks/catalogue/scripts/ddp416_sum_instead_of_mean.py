# expect: DDP416
# ranks: 2 4
# culprits: 0
# outcome: divergence
# plain: S
"""A hook of our own that also measures the gradients on rank 0, and forgets the division there."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def mean_hook(state, bucket):
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda f: f.value()[0].div_(dist.get_world_size()))


def measuring_hook(state, bucket):
    state.append(bucket.buffer().norm().item())
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()  # <- culprit
    return future.then(lambda f: f.value()[0])  # <- culprit


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 18), nn.SiLU(), nn.Linear(18, 1)))
    norms = []
    if dist.get_rank() == 0:  # <- culprit
        model.register_comm_hook(norms, measuring_hook)  # <- culprit
    else:
        model.register_comm_hook(None, mean_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(dist.get_rank())
    for _ in range(8):
        x = torch.randn(8, 6)
        loss = (model(x) - x[:, :1]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if norms:
        print("mean local norm", sum(norms) / len(norms))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
