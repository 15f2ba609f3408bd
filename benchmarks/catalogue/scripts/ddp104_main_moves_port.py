# expect: DDP104
# also: DDP101
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
import os
import socket

import torch
import torch.distributed as dist


class Rendezvous:
    """The port of the job file is often taken on shared hosts, so the main process finds another one."""

    def __init__(self):
        self.rank = int(os.environ["RANK"])
        self.address = os.environ["MASTER_ADDR"]

    def pick_port(self):
        with socket.socket() as probe:
            probe.bind(("", 0))
            return probe.getsockname()[1]

    def settle(self):
        if self.rank == 0:
            os.environ["MASTER_PORT"] = str(self.pick_port())  # <- culprit
        dist.init_process_group("gloo")  # <- culprit


Rendezvous().settle()
scores = torch.rand(10)
dist.all_reduce(scores, op=dist.ReduceOp.MAX)
if dist.get_rank() == 0:
    print(scores)
dist.destroy_process_group()
