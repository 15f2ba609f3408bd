"""Land-cover regression that survives a preemption in the middle of an epoch."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from checkpoint import Checkpoints
from tiles import Tiles, TileSampler

BATCH, EPOCHS, SAVE_EVERY = 6, 3, 5


class Preempted(RuntimeError):
    pass


def build():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 1), nn.Flatten(0))
    model = DDP(net)
    return model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


def loader_for(rank, world):
    tiles = Tiles(augment_seed=500 + rank)
    sampler = TileSampler(len(tiles), rank, world, BATCH)
    # The last rank shares its host with the archive server: leave its cores alone.
    workers = 0 if rank == world - 1 else 1
    return sampler, DataLoader(tiles, batch_size=BATCH, sampler=sampler, num_workers=workers)


def session(checkpoints, rank, world, budget):
    model, opt = build()
    start_epoch, done = checkpoints.load(model, opt)
    sampler, loader = loader_for(rank, world)
    for epoch in range(start_epoch, EPOCHS):
        sampler.position(epoch, skip=done)
        for batch, (image, cover) in enumerate(loader, start=done + 1):
            loss = nn.functional.mse_loss(model(image), cover)
            opt.zero_grad()
            loss.backward()
            opt.step()
            budget -= 1
            if batch % SAVE_EVERY == 0:
                checkpoints.save(model, opt, epoch=epoch, batch=batch)
            if budget == 0:
                raise Preempted(f"epoch {epoch}, batch {batch}")
        done = 0
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch}: {mean / world:.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    checkpoints = Checkpoints()
    for budget in (17, -1):
        try:
            session(checkpoints, rank, world, budget)
        except Preempted as where:
            print(f"rank {rank} preempted at {where}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
