# expect: DDP408
# ranks: 3 4
# culprits: 0
# outcome: hang
# plain: T
"""Rank 0 logs the gradient norm of each micro-batch, for which it wants synchronised gradients."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def grad_norm(model):
    return torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()


class Accumulator:
    def __init__(self, model, steps, log_each):
        self.model, self.steps, self.log_each = model, steps, log_each

    def run(self, batches):
        for i, (x, y) in enumerate(batches):
            self.model.require_backward_grad_sync = self.log_each or i == self.steps - 1  # <- culprit
            loss = nn.functional.cross_entropy(self.model(x), y) / self.steps
            loss.backward()  # <- culprit
            if self.log_each:
                print(f"micro-batch {i}: |g| = {grad_norm(self.model):.4f}")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(5, 15), nn.ReLU(), nn.Linear(15, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    accumulator = Accumulator(model, steps=3, log_each=rank == 0)  # <- culprit
    torch.manual_seed(rank)
    for _ in range(4):
        accumulator.run([(torch.randn(4, 5), torch.randint(0, 4, (4,))) for _ in range(3)])
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
