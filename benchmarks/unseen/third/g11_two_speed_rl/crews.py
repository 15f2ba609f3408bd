import queue
import threading
from functools import cached_property

import torch
import torch.distributed as dist


class Crews:
    def __init__(self, rank, world):
        self.rank = rank
        half = (world + 1) // 2
        members = {"critics": list(range(half, world)), "simulators": list(range(half))}
        self.lead = {crew: ranks[0] for crew, ranks in members.items()}
        groups = {crew: dist.new_group(ranks) for crew, ranks in members.items()}
        self.simulates = rank in members["simulators"]
        self.mine = groups["simulators" if self.simulates else "critics"]

    def publish(self, net, src):
        """Everybody gets the network of the crew that trains it."""
        for p in net.parameters():
            dist.broadcast(p.data, src=src)


class Telemetry:
    """Averages a number per round in a thread, on a group that nothing else uses."""

    def __init__(self, rank):
        self.rank, self.log = rank, []
        self.group = dist.new_group()
        self.inbox = queue.SimpleQueue()
        self.runner.start()

    @cached_property
    def runner(self):
        return threading.Thread(target=self._run, name="telemetry")

    def push(self, round_, number):
        self.inbox.put((round_, number))

    def _run(self):
        for _, number in iter(self.inbox.get, None):
            t = torch.tensor([number])
            dist.reduce(t, dst=0, group=self.group)
            if self.rank == 0:
                self.log.append(t.item() / dist.get_world_size(self.group))

    def close(self):
        self.inbox.put(None)
        self.runner.join()
