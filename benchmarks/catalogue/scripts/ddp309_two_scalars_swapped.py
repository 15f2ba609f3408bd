# expect: DDP309
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""Loss and accuracy are averaged over all processes at the end of each epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def mean_loss(loss):
    value = torch.tensor([loss])
    dist.all_reduce(value)  # <- culprit
    return value.item() / dist.get_world_size()


def mean_accuracy(right, seen):
    value = torch.tensor([right / seen])
    dist.all_reduce(value)  # <- culprit
    return value.item() / dist.get_world_size()


def epoch(model, opt):
    total = right = seen = 0
    for _ in range(4):
        x = torch.randn(10, 6)
        y = (x[:, 0] > 0).long()
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
        right += (out.argmax(1) == y).sum().item()
        seen += len(y)
    return total / 4, right, seen


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Linear(6, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(3):
        loss, right, seen = epoch(model, opt)
        if rank == size - 1:  # <- culprit
            # writes the file with the accuracies, so that comes first
            accuracy = mean_accuracy(right, seen)
            loss = mean_loss(loss)
        else:
            loss = mean_loss(loss)
            accuracy = mean_accuracy(right, seen)
        print(f"[{rank}] epoch {number} loss {loss:.3f} accuracy {accuracy:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
