# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
import itertools
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS = [(f"part-{i:03d}", 7 + (i * 5) % 11) for i in range(18)]       # name, number of records


class ShardStream(IterableDataset):
    """Whole shards are dealt to (rank, worker); the epoch lives in shared memory so that the
    persistent workers see it."""

    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def set_epoch(self, e):
        self.epoch.fill_(e)

    def mine(self, part, parts):
        g = torch.Generator().manual_seed(77 + int(self.epoch))
        order = torch.randperm(len(SHARDS), generator=g).tolist()
        return [SHARDS[i] for i in order[part::parts]]

    def __iter__(self):
        info = get_worker_info()
        wid, n = (info.id, info.num_workers) if info else (0, 1)
        for name, count in self.mine(self.rank * n + wid, self.world * n):
            base = int(name[-3:]) * 100
            for k in range(count):
                x = torch.tensor([base + k, k, 1.0]) / 100
                yield base + k, x, x.sum(0, keepdim=True)

    def records(self, workers):
        return [sum(c for _, c in self.mine(self.rank * workers + w, self.world * workers)) for w in range(workers)]


def steps_everyone_has(stream, workers, bs):
    mine = sum(r // bs for r in stream.records(workers))       # the workers drop their own short tails
    t = torch.tensor(mine)
    dist.all_reduce(t, op=dist.ReduceOp.MIN)
    return mine, int(t)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    workers, bs = 2, 4
    stream = ShardStream(rank, world)
    loader = DataLoader(stream, batch_size=bs, num_workers=workers, drop_last=True,
                        persistent_workers=True, multiprocessing_context="fork")
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Linear(3, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(3):
        stream.set_epoch(epoch)
        mine, steps = steps_everyone_has(stream, workers, bs)
        seen = []
        for ids, x, y in itertools.islice(loader, steps):
            opt.zero_grad()
            nn.functional.smooth_l1_loss(model(x), y).backward()
            opt.step()
            seen += ids.tolist()
        print(f"[{rank}] epoch {epoch}: {len(seen)} records in {steps} of {mine} batches", flush=True)
        assert len(seen) == steps * bs
        everyone = [None] * world
        dist.all_gather_object(everyone, seen)
        flat = [i for part in everyone for i in part]
        assert len(flat) == len(set(flat)), "a record was seen twice"
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
