# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""Feature extraction from a shared queue, then a joint fit. Ranks take as many items as they can."""
import datetime
import logging
import logging.handlers
import os
import queue
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ITEMS = 14
wish = {"save": False}


def start_logging(rank):
    q = queue.SimpleQueue()
    out = logging.StreamHandler(sys.stdout)
    out.setFormatter(logging.Formatter(f"[{rank}] %(message)s"))
    listener = logging.handlers.QueueListener(q, out)
    listener.start()
    log = logging.getLogger("extract")
    log.setLevel(logging.INFO)
    log.addHandler(logging.handlers.QueueHandler(q))
    return log, listener


def open_stores(rank, world):
    master = dist.TCPStore("127.0.0.1", 0, world, is_master=True, wait_for_workers=False) if rank == 0 else None
    where = [(master.port, tempfile.mktemp(prefix="notes_"))] if rank == 0 else [None]
    dist.broadcast_object_list(where, src=0)
    port, path = where[0]
    tcp = master or dist.TCPStore("127.0.0.1", port, world, is_master=False)
    return tcp, dist.FileStore(path, world), path


def extract(item):
    if item == 3:
        end = time.monotonic() + 1.5                      # one long recording
        while time.monotonic() < end:
            torch.randn(64, 64).svd()
    g = torch.Generator().manual_seed(item)
    return item, torch.randn(5, generator=g)


def main():
    signal.signal(signal.SIGUSR1, lambda *_: wish.update(save=True))
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=2))
    rank, world = dist.get_rank(), dist.get_world_size()
    log, listener = start_logging(rank)
    tasks, notes, path = open_stores(rank, world)
    mine = []
    while (item := tasks.add("next", 1) - 1) < ITEMS:
        mine.append(extract(item))
    notes.set(f"count/{rank}", str(len(mine)))
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=60))
    counts = [int(notes.get(f"count/{r}")) for r in range(world)]
    log.info("took %d of %d", len(mine), sum(counts))
    assert sum(counts) == ITEMS
    boxes = [None] * world if rank == 0 else None
    dist.gather_object(mine, boxes, dst=0)
    table = [[x for _, x in sorted(sum(boxes, []), key=lambda p: p[0])]] if rank == 0 else [None]
    dist.broadcast_object_list(table, src=0)
    x = torch.stack(table[0])[:12][rank::world]
    torch.manual_seed(0)
    model = DDP(nn.Linear(5, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(4):
        if rank == 0 and step == 2:
            os.kill(os.getpid(), signal.SIGUSR1)
        opt.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        opt.step()
        asked = torch.tensor(int(wish["save"]))
        dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        if asked.item():
            wish["save"] = False
            if rank == 0:
                done = subprocess.run([sys.executable, "-c", "print('archived')"], capture_output=True, text=True)
                log.info("step %d %s", step, done.stdout.strip())
            dist.barrier()
    listener.stop()
    dist.barrier()                                        # the first rank serves the queue until here
    del tasks, notes
    if rank == 0 and os.path.exists(path):
        os.remove(path)
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
