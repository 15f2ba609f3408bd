# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
"""House-keeping through key-value stores: tickets, a late rank, work stealing, a second life of the group."""
import datetime
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SHORT = datetime.timedelta(seconds=20)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def own_store():
    """A TCPStore apart from torchrun's."""
    box = [free_port() if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return dist.TCPStore("127.0.0.1", box[0], world, is_master=rank == 0, timeout=SHORT)


def work_stealing(store, tasks):
    """Ranks draw tickets until there are none: the shares are unequal and that is the point."""
    jobs = dist.PrefixStore("jobs", store)
    done = []
    while (ticket := jobs.add("next", 1) - 1) < tasks:
        time.sleep(0.01 * (1 + rank))
        done.append(ticket)
    everyone = [None] * world
    dist.all_gather_object(everyone, done)
    assert sorted(t for part in everyone for t in part) == list(range(tasks))
    return len(done)


def late_rank(store):
    """The last rank brings the configuration and is late; the others wait for the key."""
    cfg = dist.PrefixStore("cfg", store)
    if rank == world - 1:
        time.sleep(1.0)
        cfg.set("lr", "0.25")
    else:
        cfg.wait(["lr"], SHORT)
    assert float(cfg.get("lr")) == 0.25


def file_counter():
    box = [tempfile.mkdtemp(prefix="fs-") if rank == 0 else None]
    dist.broadcast_object_list(box)
    fs = dist.FileStore(os.path.join(box[0], "store"), world)
    fs.add("total", rank + 1)
    dist.monitored_barrier(timeout=SHORT)
    assert fs.add("total", 0) == world * (world + 1) // 2
    dist.monitored_barrier(timeout=SHORT, wait_all_ranks=True)


def second_life(store):
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()
    assert not dist.is_initialized()
    for life in (2, 3):
        dist.init_process_group("gloo", store=dist.PrefixStore(f"life{life}", store), rank=rank, world_size=world)
        t = torch.tensor([rank * life])
        dist.all_reduce(t)
        assert t.item() == life * world * (world - 1) // 2
        if life == 2:
            dist.barrier()
            time.sleep(0.3)
            dist.destroy_process_group()


dist.init_process_group("gloo")
store = own_store()
n = work_stealing(store, 20)
late_rank(store)
file_counter()
second_life(store)
print(f"[{rank}] did {n} jobs", flush=True)
dist.barrier()
time.sleep(0.3)
dist.destroy_process_group()
