# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""ZeRO stage 1 by hand: gradients reduced to the owner of a parameter, Adam there, the new value broadcast.
Then a resume: the shards are gathered on rank 0, "saved", broadcast as an object and taken up again."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn


class ShardedAdam:
    def __init__(self, params, lr):
        self.params = list(params)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        load = [0] * self.world
        self.owner = []
        for p in self.params:                                     # greedy balance, equal on all ranks
            r = load.index(min(load))
            load[r] += p.numel()
            self.owner.append(r)
        self.mine = [i for i, r in enumerate(self.owner) if r == self.rank]
        self.inner = torch.optim.Adam([self.params[i] for i in self.mine], lr=lr) if self.mine else None

    def step(self):
        works = [dist.reduce(p.grad, dst=r, async_op=True) for p, r in zip(self.params, self.owner)]
        for w in works:
            w.wait()
        for i in self.mine:
            self.params[i].grad.div_(self.world)
        if self.inner:
            self.inner.step()
        for p, r in zip(self.params, self.owner):
            dist.broadcast(p.data, src=r)

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def consolidate(self):
        local = {i: self.inner.state[self.params[i]] for i in self.mine}
        shards = [None] * self.world if self.rank == 0 else None
        dist.gather_object(local, shards, dst=0)
        return {k: v for s in shards for k, v in s.items()} if self.rank == 0 else None

    def restore(self, full):
        box = [full]
        dist.broadcast_object_list(box, src=0)
        for i in self.mine:
            self.inner.state[self.params[i]] = {k: v.clone() for k, v in box[0][i].items()}


def make():
    torch.manual_seed(12)
    return nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 2)).double()


def batch(step, rank):
    g = torch.Generator().manual_seed(97 * step + rank)
    x = torch.randn(5, 6, generator=g, dtype=torch.double)
    return x, torch.stack([x.sum(1), x.prod(1)], 1)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = make()
    opt = ShardedAdam(net.parameters(), lr=0.01)
    for step in range(8):
        if step == 4:                                             # resume half way
            saved = opt.consolidate()
            opt = ShardedAdam(net.parameters(), lr=0.01)
            opt.restore(saved)
        x, y = batch(step, rank)
        opt.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        opt.step()

    plain = make()
    adam = torch.optim.Adam(plain.parameters(), lr=0.01)
    for step in range(8):
        pairs = [batch(step, r) for r in range(world)]
        adam.zero_grad()
        nn.functional.mse_loss(plain(torch.cat([a for a, _ in pairs])), torch.cat([b for _, b in pairs])).backward()
        adam.step()
    for a, b in zip(net.parameters(), plain.parameters()):
        assert torch.allclose(a, b, atol=1e-6)
    if rank == 0:
        print("owners", opt.owner)
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
