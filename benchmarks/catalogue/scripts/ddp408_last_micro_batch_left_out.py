# expect: DDP408
# ranks: 2
# culprits: range(n)
# outcome: divergence
# plain: S
# Re-enacts: pull-request thread on gradient accumulation: the last micro-batch is the one left out of the synchronisation.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Accumulator:
    def __init__(self, model, optimizer, every):
        self.model, self.optimizer, self.every = model, optimizer, every
        self.n = 0

    def should_step(self):
        return (self.n + 1) % self.every == 0

    def backward(self, compute_loss):
        if self.should_step():  # <- culprit
            with self.model.no_sync():  # <- culprit
                loss = compute_loss() / self.every
                loss.backward()  # <- culprit
        else:
            loss = compute_loss() / self.every
            loss.backward()
        if self.should_step():
            self.optimizer.step()  # <- culprit
            self.optimizer.zero_grad()
        self.n += 1
        return loss.item() * self.every


def main(steps=8, every=2):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(12, 3))
    acc = Accumulator(model, torch.optim.SGD(model.parameters(), lr=0.1), every)
    gen = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = torch.randn(8, 12, generator=gen)
        y = torch.randint(0, 3, (8,), generator=gen)
        value = acc.backward(lambda: nn.functional.cross_entropy(model(x), y))  # <- culprit
    print(f"[{rank}] {value:.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
