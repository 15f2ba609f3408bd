# expect: DDP313
# ranks: 2
# culprits: [0]
# outcome: hang
# plain: T
# Re-enacts: forum question, training stops at the first checkpoint: the writer thread is gone and its queue is full.
import io
import queue
import threading
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class BackgroundSaver:
    def __init__(self):
        self.jobs = queue.Queue(maxsize=1)
        self.written = []
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        while True:
            state = self.jobs.get()
            if state is None:
                return
            buf = io.BytesIO()
            torch.save(state, buf)
            self.written.append(buf.tell())

    def submit(self, state):
        self.jobs.put({k: v.clone() for k, v in state.items()})  # <- culprit

    def flush(self):
        self.jobs.put(None)  # <- culprit


class Loop:
    def __init__(self, rank):
        self.rank = rank
        torch.manual_seed(0)
        self.model = DDP(nn.Linear(16, 16))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.saver = BackgroundSaver() if rank == 0 else None

    def train_epoch(self, epoch):
        for _ in range(3):
            loss = self.model(torch.randn(4, 16)).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        if self.saver:
            self.saver.submit(self.model.module.state_dict())  # <- culprit
            self.saver.flush()  # wait until it is on disk  # <- culprit
        print(f"[{self.rank}] epoch {epoch} finished", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    loop = Loop(dist.get_rank())
    for epoch in range(4):
        loop.train_epoch(epoch)  # <- culprit
    dist.destroy_process_group()
