# expect: DDP310
# ranks: 2
# culprits: range(n)
# outcome: any
# plain: S
# Re-enacts: report of garbled metrics, a monitoring thread reduces its counters while the main thread evaluates.
import threading
import time
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class ThroughputMonitor(threading.Thread):
    def __init__(self, rounds=25):
        super().__init__(daemon=True)
        self.samples = 0
        self.rounds = rounds
        self.total = 0.0

    def run(self):
        for _ in range(self.rounds):
            counter = torch.tensor([float(self.samples)])
            dist.all_reduce(counter)  # <- culprit
            self.total = counter.item()
            time.sleep(0.01)


def evaluate(model, batches):
    losses = []
    for x in batches:
        value = model.module(x).pow(2).mean().detach().reshape(1)
        dist.all_reduce(value)  # <- culprit
        losses.append(value.item() / dist.get_world_size())
        time.sleep(0.01)
    return sum(losses) / len(losses)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 8))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        loss = model(torch.randn(4, 8)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    monitor = ThroughputMonitor()
    monitor.samples = 12
    monitor.start()  # <- culprit
    result = evaluate(model, [torch.randn(4, 8) for _ in range(25)])  # <- culprit
    monitor.join()
    dist.barrier()
    if rank == 0:
        print(f"loss {result:.4f}, samples {monitor.total:.0f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
