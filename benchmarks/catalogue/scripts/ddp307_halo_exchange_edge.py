# expect: DDP307
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Heat equation on a strip that is cut into pieces; neighbours exchange their edges."""

import torch
import torch.distributed as dist


class Strip:
    def __init__(self, cells, periodic):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.u = torch.rand(cells + 2)
        self.periodic = periodic

    def neighbours(self):
        left, right = self.rank - 1, self.rank + 1
        if self.periodic:
            return left % self.size, right % self.size
        return left, right if right < self.size else None

    def exchange(self):
        left, right = self.neighbours()
        ops = []
        if left is not None and left >= 0:
            ops.append(dist.P2POp(dist.isend, self.u[1:2].clone(), left, tag=0))
            ops.append(dist.P2POp(dist.irecv, self.u[0:1], left, tag=1))
        if right is not None:
            ops.append(dist.P2POp(dist.isend, self.u[-2:-1].clone(), right, tag=1))
            ops.append(dist.P2POp(dist.irecv, self.u[-1:], right, tag=0))
        for work in dist.batch_isend_irecv(ops):
            work.wait()  # <- culprit

    def step(self):
        self.exchange()
        self.u[1:-1] += 0.2 * (self.u[2:] - 2 * self.u[1:-1] + self.u[:-2])


def main():
    dist.init_process_group("gloo")
    # the strip is open at both ends; the last piece was configured as a ring
    strip = Strip(8, periodic=dist.get_rank() == dist.get_world_size() - 1)  # <- culprit
    for _ in range(5):
        strip.step()
    print(strip.rank, strip.u.mean().item())
    dist.destroy_process_group()


main()
