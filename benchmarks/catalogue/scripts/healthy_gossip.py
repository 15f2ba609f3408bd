# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""Decentralised training: neighbours mix their weights, nobody reduces gradients. A thread carries telemetry."""
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

STEPS, BEATS = 8, 4


class Telemetry(threading.Thread):
    """Point-to-point messages on a group of their own; the first rank collects."""

    def __init__(self, group, rank, world):
        super().__init__(daemon=True)
        self.group, self.rank, self.world = group, rank, world
        self.inbox = queue.Queue()
        self.seen = {}

    def report(self, value):
        self.inbox.put(float(value))

    def run(self):
        for beat in range(BEATS):
            value = torch.tensor([self.inbox.get()])
            if self.rank:
                dist.isend(value, 0, group=self.group, tag=beat).wait()
                continue
            slots = {r: torch.zeros(1) for r in range(1, self.world)}
            works = {r: dist.irecv(t, r, group=self.group, tag=beat) for r, t in slots.items()}
            for r in sorted(works, reverse=True):
                works[r].wait()
            self.seen[beat] = [value.item()] + [slots[r].item() for r in range(1, self.world)]


def partner(rank, world, step):
    """Pairs (0,1)(2,3).. and (1,2)(3,0).. in turn."""
    if world == 2 or step % 2 == 0:
        return rank ^ 1
    return (rank + 1) % world if rank % 2 else (rank - 1) % world


@torch.no_grad()
def mix(net, peer):
    mine = nn.utils.parameters_to_vector(net.parameters())
    theirs = torch.empty_like(mine)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)]):
        work.wait()
    nn.utils.vector_to_parameters((mine + theirs) / 2, net.parameters())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    side = dist.new_group()
    telemetry = Telemetry(side, rank, world)
    telemetry.start()
    torch.manual_seed(rank)                       # the nodes start from different points
    net = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.05 * (1 + rank / world))
    g = torch.Generator().manual_seed(70 + rank)
    for step in range(STEPS):
        x = torch.randn(16, 4, generator=g)
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x), x.sum(1, keepdim=True))
        loss.backward()
        opt.step()
        mix(net, partner(rank, world, step))
        if step % 2 == 0:
            telemetry.report(loss.item())
    telemetry.join()
    vector = nn.utils.parameters_to_vector(net.parameters()).detach()
    dist.all_reduce(vector)
    nn.utils.vector_to_parameters(vector / world, net.parameters())
    if rank == 0:
        assert len(telemetry.seen) == BEATS and all(len(v) == world for v in telemetry.seen.values())
        for beat, values in telemetry.seen.items():
            print(beat, [round(v, 3) for v in values], flush=True)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
