"""Train, then gather the predictions of all ranks to measure the error on the whole test set."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def gather(values):
    count = torch.tensor(len(values))
    counts = [torch.empty_like(count) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, count)
    padded = nn.functional.pad(values, (0, int(max(counts)) - len(values)))
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)])


@torch.no_grad()
def evaluate(model, shard):
    model.eval()
    errors = [gather(model(batch).square().flatten()) for batch in DataLoader(shard, batch_size=16)]
    return torch.cat(errors).mean().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    test = torch.randn(77, 8, generator=torch.Generator().manual_seed(0))
    error = evaluate(model.module, test[rank::2])
    print(f"rank {rank}: error {error:.4f}")
    dist.destroy_process_group()


main()
