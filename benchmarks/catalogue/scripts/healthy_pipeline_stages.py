# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: a small pipeline over send and recv, micro-batches forward and gradients back, uneven compute per stage.
import time
import torch
import torch.nn as nn
import torch.distributed as dist

WIDTH, MICRO = 8, 3


class Stage:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(self.rank)
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    @property
    def first(self):
        return self.rank == 0

    @property
    def last(self):
        return self.rank == self.world - 1

    def forward(self, x, tag):
        if not self.first:
            x = torch.empty(4, WIDTH)
            dist.recv(x, src=self.rank - 1, tag=tag)
            x.requires_grad_()
        y = self.net(x)
        if self.last:
            time.sleep(0.02)
        else:
            dist.send(y.detach(), dst=self.rank + 1, tag=tag)
        return x, y

    def backward(self, x, y, tag):
        if self.last:
            loss = y.pow(2).mean() / MICRO
            loss.backward()
        else:
            grad = torch.empty_like(y)
            dist.recv(grad, src=self.rank + 1, tag=tag)
            y.backward(grad)
        if not self.first:
            dist.send(x.grad, dst=self.rank - 1, tag=tag)

    def step(self, batch):
        saved = [self.forward(m, 10 + i) for i, m in enumerate(batch)]
        for i, (x, y) in enumerate(saved):
            self.backward(x, y, 50 + i)
        self.opt.step()
        self.opt.zero_grad()


def main():
    dist.init_process_group("gloo")
    stage = Stage()
    g = torch.Generator().manual_seed(0)
    for it in range(4):
        stage.step([torch.randn(4, WIDTH, generator=g) for _ in range(MICRO)])
    print(f"stage {stage.rank} finished", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
