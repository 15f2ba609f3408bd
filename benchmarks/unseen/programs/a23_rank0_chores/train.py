import os
import random
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from chores import Chores


def dataset(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 7, generator=g)
    return x, (x[:, :2].prod(1, keepdim=True) + x[:, 2:3])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    master = int(os.environ["LOCAL_RANK"]) == 0
    folder = tempfile.TemporaryDirectory() if master else None
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(7, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    ddp = DDP(net)
    torch.manual_seed(1000 + rank)
    random.seed(rank)
    chores = Chores(folder.name, dataset(64, seed=8)) if master else None
    train = TensorDataset(*dataset(128 * dist.get_world_size(), seed=1))
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=16, sampler=sampler)
    opt = torch.optim.Adam(ddp.parameters(), lr=5e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        start = time.time()
        for x, y in loader:
            if random.random() < 0.5:
                x = x + 0.01 * torch.randn_like(x)
            opt.zero_grad()
            nn.functional.mse_loss(ddp(x), y).backward()
            opt.step()
        if not master:
            print(f"[{rank}] {time.time() - start:.2f}s", flush=True)
        else:
            chores(epoch, ddp, opt, time.time() - start)
    dist.barrier()
    box = [torch.load(os.path.join(folder.name, "best.pt"), weights_only=True)["net"] if master else None]
    dist.broadcast_object_list(box, src=0)
    ddp.module.load_state_dict(box[0])
    if master:
        chores.close()
        folder.cleanup()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
