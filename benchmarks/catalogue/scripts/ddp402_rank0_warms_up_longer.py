# expect: DDP402
# ranks: 3 4
# culprits: 0
# outcome: any
# plain: S
"""The refinement stage starts after a warm-up; rank 0 counts its steps from the restored value."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Refiner(nn.Module):
    def __init__(self):
        super().__init__()
        self.coarse = nn.Conv1d(2, 4, 3, padding=1)
        self.refine = nn.Conv1d(4, 4, 3, padding=1)
        self.out = nn.Conv1d(4, 2, 1)

    def forward(self, x, refine):
        x = torch.relu(self.coarse(x))
        if refine:  # <- culprit
            x = x + torch.relu(self.refine(x))  # <- culprit
        return self.out(x)


class State:
    def __init__(self, step=0):
        self.step = step


def restore(rank):
    # the file with the counter was only written by rank 0, before the last reset
    return State(step=-6) if rank == 0 else State()  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Refiner(), find_unused_parameters=True)  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = restore(rank)  # <- culprit
    torch.manual_seed(rank)
    for _ in range(10):
        x = torch.randn(2, 2, 16)
        prediction = model(x, refine=state.step >= 3)  # <- culprit
        loss = (prediction - x.roll(1, -1)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state.step += 1
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
