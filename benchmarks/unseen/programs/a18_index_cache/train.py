import shutil
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from index import build_index


def latents(files, rank, dim=10):
    total = sum(files.values())
    g = torch.Generator().manual_seed(rank)
    x = torch.randn(total, dim, generator=g)
    return x, x.square().mean(1, keepdim=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    box = [tempfile.mkdtemp(prefix="latents_")] if rank == 0 else [None]
    dist.broadcast_object_list(box, src=0)
    files = build_index(box[0], rank)
    x, y = latents(files, rank)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.SiLU(), nn.Linear(32, 1)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(2):
        for xb, yb in zip(x.split(32), y.split(32)):
            loss = nn.functional.mse_loss(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(box[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
