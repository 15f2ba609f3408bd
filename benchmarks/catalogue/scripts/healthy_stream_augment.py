# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""Stream split over ranks and workers; augmentation is random and differs between ranks on purpose."""
import itertools
import random

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Frames(IterableDataset):
    def __init__(self, n, rank, world, augment):
        self.n, self.rank, self.world, self.augment, self.epoch = n, rank, world, augment, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        order = list(range(self.n))
        random.Random(self.epoch).shuffle(order)
        for i in order[self.rank * workers + worker :: self.world * workers]:
            g = torch.Generator().manual_seed(i)
            yield self.augment(torch.randn(1, 6, 6, generator=g)), float(i % 2)


class Augment:
    def __init__(self, seed):
        self.seed = seed

    def __call__(self, img):
        if random.random() < 0.5:
            img = img.flip(-1)
        return img * random.uniform(0.8, 1.2) + 0.05 * torch.randn_like(img)


def seed_worker(worker_id):
    random.seed(torch.initial_seed() % 2**32)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1))
    torch.manual_seed(1000 + rank)  # from here on every rank draws its own numbers
    random.seed(1000 + rank)
    model = DDP(net)
    frames = Frames(203, rank, world, Augment(rank))
    loader = DataLoader(frames, batch_size=4, num_workers=2, worker_init_fn=seed_worker)
    steps = 203 // (4 * world) - 2  # the same on all ranks, the remainder is dropped
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(2):
        frames.set_epoch(epoch)
        for img, y in itertools.islice(loader, steps):
            loss = nn.functional.binary_cross_entropy_with_logits(model(img).squeeze(1), y.float())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch}: {mean.item() / world:.4f} after {steps} steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
