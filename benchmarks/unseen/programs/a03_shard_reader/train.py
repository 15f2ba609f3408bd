import contextlib
import logging
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from reader import ShardReader, write_shards

logger = logging.getLogger("train")


@contextlib.contextmanager
def process_group():
    dist.init_process_group("gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


class Progress:
    def __init__(self, enabled, every=5):
        self.enabled, self.every = enabled, every

    def __call__(self, epoch, step, loss):
        if self.enabled and step % self.every == 0:
            print(f"epoch {epoch} step {step:3d} loss {loss:.4f}", flush=True)


def train(rank, world, folder, epochs=2, batch_size=16):
    loader = torch.utils.data.DataLoader(ShardReader(folder, rank, world, batch_size), batch_size=None)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2)))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    progress = Progress(enabled=not rank)
    for epoch in range(epochs):
        for step, (x, y) in enumerate(loader):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            progress(epoch, step, loss.item())
        seen = torch.tensor([step + 1.0])
        dist.all_reduce(seen)
        logger.info("epoch %d: %d batches over all ranks", epoch, int(seen))


def main():
    with process_group() as (rank, world), contextlib.ExitStack() as stack:
        where = [None]
        if rank == 0:
            where = [stack.enter_context(tempfile.TemporaryDirectory(prefix="shards_"))]
            write_shards(where[0], num_shards=2 * world, records_per_shard=96)
        dist.broadcast_object_list(where, src=0)
        train(rank, world, where[0])
        dist.barrier()


if __name__ == "__main__":
    main()
