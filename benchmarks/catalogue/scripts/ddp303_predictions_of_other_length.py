# expect: DDP303
# ranks: 2
# culprits: [n-1]
# outcome: crash
# plain: A
# Re-enacts: issue "gloo EnforceNotMet op.preamble.length <= op.nbytes": predictions of different length are gathered.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, Subset


def all_gather_cat(t):
    out = [torch.empty_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(out, t)  # <- culprit
    return torch.cat(out)


def split_indices(n, rank, world):
    """Contiguous shares without padding, so that no test sample is counted twice."""
    share = (n + world - 1) // world
    return list(range(rank * share, min(n, (rank + 1) * share)))


class Evaluator:
    def __init__(self, model, dataset, rank, world):
        self.model = model
        self.loader = DataLoader(Subset(dataset, split_indices(len(dataset), rank, world)), batch_size=8)

    @torch.no_grad()
    def __call__(self):
        scores = []
        for x, _ in self.loader:
            scores.append(self.model.module(x).softmax(-1))
        return all_gather_cat(torch.cat(scores))  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(30 * world - 11, 7), torch.randint(0, 3, (30 * world - 11,)))
    model = DDP(nn.Linear(7, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for _ in range(3):
        x, y = torch.randn(8, 7, generator=g), torch.randint(0, 3, (8,), generator=g)
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()
    probs = Evaluator(model, data, rank, world)()  # <- culprit
    if rank == 0:
        print("mean top probability", probs.max(-1).values.mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
