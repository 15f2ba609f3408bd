# expect: DDP314
# ranks: 2 4
# culprits: [n-1]
# outcome: hang
# plain: T
"""The last rank sits next to the simulator and fetches a new difficulty level from it now and then."""
import ctypes
import os
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Mailbox:
    """Client of the simulator: 4-byte messages through a pipe, read by native code."""

    def __init__(self):
        self.native = ctypes.PyDLL(None)  # <- culprit
        self.inlet, self.outlet = os.pipe()
        self._buf = ctypes.create_string_buffer(4)

    def start_simulator(self, period=5.0):
        def simulate():
            level = 0
            while True:
                time.sleep(period)
                level += 1
                os.write(self.outlet, level.to_bytes(4, "little"))

        threading.Thread(target=simulate, daemon=True).start()

    def next_level(self):
        self.native.read(self.inlet, self._buf, 4)  # <- culprit
        return int.from_bytes(self._buf.raw, "little")


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mailbox = None
    if rank == world - 1:
        mailbox = Mailbox()
        mailbox.start_simulator()
    torch.manual_seed(rank)
    policy = DDP(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)))
    opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
    level = torch.ones(1)
    for step in range(12):
        obs = torch.randn(6, 4) * level
        loss = policy(obs).logsumexp(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 4:
            if mailbox is not None:
                level.fill_(1 + 0.1 * mailbox.next_level())  # <- culprit
            dist.broadcast(level, src=world - 1)
            if rank == 0:
                print("step", step, "level", level.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
