"""Scripts that are stuck, or busy, before they call init_process_group."""
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist


def lock_file():
    while os.path.exists(__file__):  # culprit: lock_file
        time.sleep(0.1)  # culprit: lock_file


def slow_poll():
    while os.path.exists(__file__):
        time.sleep(3)  # culprit: slow_poll


def file_lock():
    import fcntl

    path = os.path.join(tempfile.mkdtemp(), "lock")
    one, other = open(path, "w"), open(path, "w")
    fcntl.flock(one, fcntl.LOCK_EX)
    fcntl.flock(other, fcntl.LOCK_EX)  # culprit: file_lock


def child():
    subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"])  # culprit: child


def computes():
    end = time.monotonic() + 5
    while time.monotonic() < end:
        torch.ones(64, 64) @ torch.ones(64, 64)


def prints():
    for number in range(25):
        print("preparing", number, flush=True)
        time.sleep(0.2)


def child_computes():
    program = "import time\nend = time.monotonic() + 5\nwhile time.monotonic() < end: pass"
    subprocess.run([sys.executable, "-c", program])


globals()[sys.argv[1]]()
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
