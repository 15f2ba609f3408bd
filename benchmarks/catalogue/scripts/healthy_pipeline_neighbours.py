# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""A pipeline of one layer a rank: activations go up, gradients come down, with isend, irecv and batches of them."""

import torch
import torch.distributed as dist
from torch import nn

BATCH, WIDTH, MICRO = 4, 12, 3


class Stage:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(self.rank)
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.1)
        self.first, self.last = self.rank == 0, self.rank == self.world - 1

    def forward(self):
        if self.first:
            x = torch.randn(BATCH, WIDTH)
        else:
            x = torch.empty(BATCH, WIDTH)
            dist.irecv(x, src=self.rank - 1).wait()
            x.requires_grad_()
        y = self.layer(x).tanh()
        if not self.last:
            dist.isend(y.detach(), dst=self.rank + 1).wait()
        return x, y

    def backward(self, x, y):
        if self.last:
            y.square().mean().backward()
        else:
            gradient = torch.empty(BATCH, WIDTH)
            dist.recv(gradient, src=self.rank + 1)
            y.backward(gradient)
        if not self.first:
            dist.send(x.grad, dst=self.rank - 1)

    def step(self):
        self.optimizer.zero_grad()
        for _ in range(MICRO):
            self.backward(*self.forward())
        self.optimizer.step()


def ring(value):
    """Everybody's number goes once around."""
    rank, world = dist.get_rank(), dist.get_world_size()
    total = value.clone()
    for _ in range(world - 1):
        incoming = torch.empty_like(value)
        requests = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, value, (rank + 1) % world),
                dist.P2POp(dist.irecv, incoming, (rank - 1) % world),
            ]
        )
        for request in requests:
            request.wait()
        value = incoming
        total += value
    return total


dist.init_process_group("gloo")
stage = Stage()
for _ in range(4):
    stage.step()
print(f"rank {stage.rank}: {ring(torch.tensor([float(stage.rank)])).item()}", flush=True)
dist.destroy_process_group()
