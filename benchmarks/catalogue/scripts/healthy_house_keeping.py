# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""A loop with the usual house-keeping: decoding threads, a git call, a save-and-stop signal, a metrics process."""
import json
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

stop_asked = threading.Event()


def decode(i):
    g = torch.Generator().manual_seed(i)
    return torch.randn(6, generator=g)


def batches(pool, rank, world, n, size=8):
    jobs = None
    for b in range(n + 1):
        ids = [(b * world + rank) * size + k for k in range(size)]
        following = [pool.submit(decode, i) for i in ids] if b < n else None
        if jobs is not None:
            yield torch.stack([j.result() for j in jobs])
        jobs = following


def metrics_process(q, path):
    with open(path, "w") as f:
        for record in iter(q.get, None):
            f.write(json.dumps(record) + "\n")


def everybody_agrees_to_stop():
    flag = torch.tensor([int(stop_asked.is_set())])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def version():
    out = subprocess.run([sys.executable, "-c", "print('v1.2')"], capture_output=True, text=True)
    return out.stdout.strip()


def main():
    signal.signal(signal.SIGUSR1, lambda *_: stop_asked.set())
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    records, writer = None, None
    if rank == 0:
        records = mp.get_context("fork").Queue()
        path = os.path.join(tempfile.mkdtemp(), "metrics.jsonl")
        writer = mp.get_context("fork").Process(target=metrics_process, args=(records, path), daemon=True)
        writer.start()
        records.put({"version": version(), "world": world})
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    done = 0
    with ThreadPoolExecutor(max_workers=2) as pool:
        for x in batches(pool, rank, world, n=40):
            loss = (model(x) - x.roll(1, 1)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            done += 1
            if rank == 0:
                records.put({"step": done, "loss": loss.item()})
            if done == 20 and rank == world - 1:
                os.kill(os.getpid(), signal.SIGUSR1)  # what the queueing system does near the end of the slot
            if done % 10 == 0 and everybody_agrees_to_stop():
                break
    if rank == 0:
        records.put(None)
        writer.join()
        with open(path) as f:
            print("stopped after", done, "steps;", len(f.readlines()), "records")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
