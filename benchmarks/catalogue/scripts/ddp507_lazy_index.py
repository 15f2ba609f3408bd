# expect: DDP507
# ranks: 2 4
# culprits: range(n)
# outcome: hang
# plain: T
"""Data set with an index file that is opened in the background while the model is being built."""
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Indexed(Dataset):
    def __init__(self, n=48):
        self.n = n
        self._index = None
        self._lock = threading.Lock()

    def open_index(self):
        with self._lock:  # <- culprit
            if self._index is None:
                time.sleep(3)  # the file lies on a network drive
                self._index = list(range(self.n))
        return self._index

    def warm_up(self):
        threading.Thread(target=self.open_index, daemon=True).start()  # <- culprit

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        entry = self.open_index()[i]  # <- culprit
        g = torch.Generator().manual_seed(entry)
        return torch.randn(5, generator=g), torch.tensor([float(entry % 2)])


def fit(data, epochs=2):
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=1, multiprocessing_context="fork")
    model = DDP(nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    lossf = nn.BCEWithLogitsLoss()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:  # <- culprit
            opt.zero_grad()
            loss = lossf(model(x), y)
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.barrier()
    ds = Indexed()
    ds.warm_up()
    fit(ds)
    dist.destroy_process_group()
