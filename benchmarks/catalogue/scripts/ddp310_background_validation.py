# expect: DDP310
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH = 12


class Validator:
    """Validates in the background; its table has an entry for each of the twelve sensors."""

    def __init__(self):
        self.jobs = queue.Queue()
        self.tables = []
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        while (weight := self.jobs.get()) is not None:
            error = torch.zeros(WIDTH)
            for _ in range(3):
                x = torch.randn(20, WIDTH)
                off = (x * weight).sum(1) - x.mean(1)
                error += (x * off[:, None]).abs().mean(0)
            dist.all_reduce(error)  # <- culprit
            self.tables.append(error / dist.get_world_size())

    def close(self):
        self.jobs.put(None)
        self.thread.join()


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(WIDTH, 1, bias=False))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    validator = Validator()
    for step in range(60):
        x = torch.randn(16, WIDTH)
        loss = nn.functional.mse_loss(model(x), x.mean(1, keepdim=True))
        opt.zero_grad()
        loss.backward()  # <- culprit
        opt.step()
        if step >= 5:
            validator.jobs.put(model.module.weight.detach().clone())  # <- culprit
    validator.close()
    print(dist.get_rank(), validator.tables[-1].mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
