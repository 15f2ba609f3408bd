import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from control import Controller


def gather_on_first(value):
    rank = dist.get_rank()
    slots = [torch.zeros_like(value) for _ in range(dist.get_world_size())] if rank == 0 else None
    dist.gather(value, gather_list=slots, dst=0)
    return torch.stack(slots).mean().item() if slots else None


def scatter_seeds():
    mine = torch.zeros(1, dtype=torch.long)
    if dist.get_rank() == 0:
        dist.scatter(mine, [torch.tensor([7 * r + 1]) for r in range(dist.get_world_size())], src=0)
    else:
        dist.scatter(mine, src=0)
    return int(mine)


def curriculum(epoch):
    return [8, 12, 16, 24][min(epoch, 3)]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gen = torch.Generator().manual_seed(scatter_seeds())
    torch.manual_seed(0)
    backbone, head = nn.Linear(10, 16), nn.Linear(16, 1)
    model = nn.Sequential(backbone, nn.ReLU(), head)
    controller = Controller(patience=2)
    x = torch.randn(96, 10, generator=gen)
    y = x[:, :1] - x[:, 4:5]
    epoch = 0
    while True:
        for p in backbone.parameters():
            p.requires_grad_(epoch >= 1)
        if epoch < 2:
            ddp = DDP(model)
            opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        for xb, yb in zip(x.split(curriculum(epoch)), y.split(curriculum(epoch))):
            loss = nn.functional.mse_loss(ddp(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            local = nn.functional.mse_loss(model(x), y)
        mean = gather_on_first(local)
        if rank == 0:
            print(f"epoch {epoch}: {mean:.4f} with batches of {curriculum(epoch)}", flush=True)
        if controller.should_stop(mean) or epoch == 30:
            break
        epoch += 1
    print(f"rank {rank} leaves after {epoch + 1} epochs", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
