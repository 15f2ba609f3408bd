"""Self-supervised pre-training on yard cameras."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from byol import BYOL
from cameras import Camera


def main(steps=32):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(17)
    model = DDP(BYOL())
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=2e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    camera = Camera(rank, world)

    for step, views in enumerate(camera.stream(steps)):
        loss = model(*views)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        model.module.update_target(views)
        if step % 8 == 7:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step + 1}: loss {mean.item() / world:.4f}", flush=True)

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
