# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
"""Ranks on machines of different speed take batches of different size; gradients are averaged by hand with
the number of samples as weight. The last batch is short and leaves some ranks with nothing. The result is
compared with plain one-process training on the whole batch."""
import copy
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F


def build():
    torch.manual_seed(42)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).double()


class WeightedAverager:
    """One flat buffer: all the gradients and, in the last place, the weight."""

    def __init__(self, model):
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.flat = torch.zeros(sum(p.numel() for p in self.params) + 1, dtype=torch.float64)

    def __call__(self, n):
        parts = [(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() * n for p in self.params]
        torch.cat(parts + [torch.tensor([float(n)], dtype=torch.float64)], out=self.flat)
        dist.all_reduce(self.flat)
        total = self.flat[-1].item()
        at = 0
        for p in self.params:
            p.grad = (self.flat[at:at + p.numel()] / total).view_as(p).clone()
            at += p.numel()
        return int(total)


def shares(world):
    return [4 + 3 * r for r in range(world)]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    size = shares(world)
    start = sum(size[:rank])
    g = torch.Generator().manual_seed(1)
    n = 4 * sum(size) + 3                          # the fifth batch has 3 samples: only rank 0 gets some
    x = torch.randn(n, 5, generator=g, dtype=torch.float64)
    y = x.sin().sum(1, keepdim=True)

    model = build()
    alone = copy.deepcopy(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    opt_alone = torch.optim.SGD(alone.parameters(), lr=0.02, momentum=0.9)
    average = WeightedAverager(model)
    for epoch in range(3):
        perm = torch.randperm(n, generator=torch.Generator().manual_seed(epoch))
        for lo in range(0, n, sum(size)):
            whole = perm[lo:lo + sum(size)]
            mine = whole[start:start + size[rank]]
            opt.zero_grad(set_to_none=True)
            if len(mine):
                F.mse_loss(model(x[mine]), y[mine]).backward()
            assert average(len(mine)) == len(whole)
            opt.step()

            opt_alone.zero_grad()
            F.mse_loss(alone(x[whole]), y[whole]).backward()
            opt_alone.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {F.mse_loss(model(x), y).item():.4f}", flush=True)
    for a, b in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(a, b, atol=1e-9), (a - b).abs().max()
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
