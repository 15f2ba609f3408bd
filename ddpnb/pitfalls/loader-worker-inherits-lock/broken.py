"""Train with a loader's worker, while a thread of the last rank writes statistics."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

lock = threading.Lock()
statistics = {"rows": 0}


class Rows(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        with lock:
            statistics["rows"] += 1
        x = torch.randn(6, generator=torch.Generator().manual_seed(index))
        return x, x.sum(0, keepdim=True)


def write_statistics():
    with lock:
        time.sleep(3)  # a slow disk
        print("rows so far", statistics["rows"])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    loader = DataLoader(Rows(), batch_size=4, num_workers=1, shuffle=True, multiprocessing_context="fork")
    if rank == dist.get_world_size() - 1:
        threading.Thread(target=write_statistics).start()
    model = DistributedDataParallel(nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    dist.destroy_process_group()


main()
