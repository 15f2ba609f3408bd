import torch
import torch.distributed as dist
from torch import nn

from comm import forward_recv, shift


class StageRunner:
    def __init__(self, rank, world, dim=12, micro=4, rows=6):
        self.rank, self.world = rank, world
        self.prev = rank - 1 if rank else None
        self.next = rank + 1 if rank + 1 < world else None
        self.micro, self.rows, self.dim = micro, rows, dim
        torch.manual_seed(20 + rank)
        self.stage = nn.Sequential(nn.Linear(dim, dim), nn.Tanh())
        self.opt = torch.optim.SGD(self.stage.parameters(), lr=0.1)

    def warmup(self):
        return min(self.world - 1 - self.rank, self.micro)

    def forward(self, m, data):
        x = data[m] if self.prev is None else forward_recv((self.rows, self.dim), self.prev, tag=m)
        y = self.stage(x)
        if self.next is not None:
            self.sends.append(dist.isend(y.detach(), dst=self.next, tag=m))
        self.live[m] = (x, y)

    def backward(self, m):
        x, y = self.live.pop(m)
        if self.next is None:
            loss = (y - 0.5).square().mean() / self.micro
            self.loss += loss.item()
            loss.backward()
        else:
            grad = torch.empty_like(y)
            dist.recv(grad, src=self.next, tag=100 + m)
            y.backward(grad)
        if self.prev is not None:
            self.sends.append(dist.isend(x.grad, dst=self.prev, tag=100 + m))

    def step(self, data):
        self.sends, self.live, self.loss = [], {}, 0.0
        self.opt.zero_grad()
        done = 0
        for m in range(self.micro):
            self.forward(m, data)
            if m >= self.warmup():
                self.backward(done)
                done += 1
        while done < self.micro:
            self.backward(done)
            done += 1
        for s in self.sends:
            s.wait()
        self.opt.step()
        return self.loss


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    runner = StageRunner(rank, world)
    g = torch.Generator().manual_seed(0)
    for it in range(8):
        data = torch.randn(runner.micro, runner.rows, runner.dim, generator=g)
        loss = runner.step(data)
        token = shift(torch.tensor([float(rank), loss]), rank, world)
        assert token[0].item() == (rank - 1) % world
        if rank == world - 1 and it % 3 == 0:
            print(f"iteration {it} loss {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
