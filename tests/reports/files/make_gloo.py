"""Makes the dumps in ``gloo/``: real ranks that hang, dumped from another thread, as pickle and as JSON.

torchrun --nproc-per-node 3 make_gloo.py FOLDER CASE
"""

import datetime as dt
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

FOLDER, CASE = sys.argv[1:]


def dump():
    time.sleep(4)
    path = f"{FOLDER}/{CASE}_rank_{dist.get_rank()}"
    with open(path + ".pickle", "wb") as file:
        file.write(_distributed_c10d._dump_fr_trace(True, True, False))
    with open(path + ".json", "wb") as file:
        file.write(_distributed_c10d._dump_fr_trace_json(True, False))
    time.sleep(1)
    os._exit(0)


def average(tensor):
    dist.all_reduce(tensor)


def evaluate():
    dist.broadcast(torch.ones(3), 0)


def train():
    pair = dist.new_group([0, 2])
    for step in range(4):
        if CASE == "missing" and dist.get_rank() == 1 and step == 3:
            time.sleep(60)
        if CASE == "other" and dist.get_rank() == 2 and step == 3:
            evaluate()
        average(torch.ones(2, 3))
        if dist.get_rank() != 1:
            dist.all_gather([torch.ones(2), torch.ones(2)], torch.ones(2), group=pair)
    dist.barrier()
    if CASE == "timeout" and dist.get_rank() == 1:
        time.sleep(60)
    average(torch.ones(5, dtype=torch.bfloat16))


dist.init_process_group("gloo", timeout=dt.timedelta(seconds=2 if CASE == "timeout" else 60))
threading.Thread(target=dump, daemon=True).start()
try:
    train()
except RuntimeError:
    time.sleep(60)
time.sleep(60)
