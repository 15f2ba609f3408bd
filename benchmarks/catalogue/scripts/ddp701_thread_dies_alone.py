# expect: DDP701
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Training runs in a thread, the main thread watches for a request to stop; the thread's end counts as success."""

import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TrainingThread(threading.Thread):
    def __init__(self, steps):
        super().__init__(name="training")
        self.steps = steps
        self.stop = threading.Event()
        self.history = []

    def run(self):
        g = torch.Generator().manual_seed(dist.get_rank())
        batches = torch.randn(48, 7, generator=g).split(6)
        model = DistributedDataParallel(nn.Linear(7, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(self.steps):
            if self.stop.is_set():
                return
            x = batches[step]  # <- culprit
            loss = nn.functional.cross_entropy(model(x), x.argmax(1) % 3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.history.append(loss.item())


dist.init_process_group("gloo")
thread = TrainingThread(steps=12)
thread.start()
while thread.is_alive():
    thread.join(timeout=0.2)  # <- culprit
print(f"rank {dist.get_rank()}: training finished, {len(thread.history)} steps", flush=True)  # <- culprit
dist.destroy_process_group()
