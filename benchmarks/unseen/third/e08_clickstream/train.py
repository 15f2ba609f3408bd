"""Click-through model trained on partitions of unequal size."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from events import ClickStream
from tower import TwoTower

EPOCHS, BATCH = 2, 16


def train_epoch(model, loader, opt):
    batches, total = 0, 0.0
    with Join([model]):
        for user, item, clicked in loader:
            loss = F.binary_cross_entropy_with_logits(model(user, item), clicked)
            opt.zero_grad()
            loss.backward()
            opt.step()
            batches += 1
            total += loss.item()
    return torch.tensor([total, float(batches)])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    stream = ClickStream(rank, world)
    loader = DataLoader(stream, batch_size=BATCH)
    model = DDP(TwoTower())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    for epoch in range(EPOCHS):
        stats = train_epoch(model, loader, opt)
        print(f"rank {rank}: {int(stats[1])} batches, {stream.dropped} crawler events dropped so far", flush=True)
        dist.all_reduce(stats)
        if rank == 0:
            print(f"epoch {epoch}: {stats[0] / stats[1]:.4f} over {int(stats[1])} batches", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
