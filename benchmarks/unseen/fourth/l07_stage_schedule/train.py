"""Layer-wise split of an MLP over the ranks, with micro batches."""
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from pipe import Stage

WIDTH, BATCH, MICRO = 12, 16, 4
SAMPLES, EPOCHS = 56, 2


def build_loader():
    gen = torch.Generator().manual_seed(21)
    x = torch.randn(SAMPLES, WIDTH, generator=gen)
    y = x[:, :3].sum(1, keepdim=True)
    order = torch.Generator().manual_seed(4)
    return DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True, generator=order)


def share_loss(value, world):
    t = torch.tensor([value])
    dist.broadcast(t, src=world - 1)
    return t.item()


def run_epoch(stage, loader):
    total = 0.0
    for batch, targets in loader:
        total += stage.train_batch(batch, targets)
    return total / len(loader)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = Stage(rank, world, WIDTH, MICRO, n_micro=BATCH // MICRO)
    loader = build_loader()
    if rank == 0:
        print(f"{len(loader)} batches per epoch, {stage.n_micro} micro batches each", flush=True)
    for epoch in range(EPOCHS):
        mean = share_loss(run_epoch(stage, loader), world)
        if rank == 0:
            print(f"epoch {epoch} loss {mean:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
