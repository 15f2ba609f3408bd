"""All-reduces in a loop: ``paced.py STEPS [RANK STEP]``, where that rank is killed before that step."""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
killed = [int(number) for number in sys.argv[2:4]]
total = torch.ones(4)
for step in range(int(sys.argv[1])):
    if [rank, step] == killed:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(total)
    time.sleep(0.01)
print("done", flush=True)
dist.destroy_process_group()
