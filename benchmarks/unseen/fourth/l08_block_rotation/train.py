"""Attention over a long sequence that is cut into one block per rank."""
import torch
import torch.distributed as dist
import torch.nn as nn

from ring import ring_attention

LENGTH, WIDTH, STEPS = 24, 16, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, rank, world):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return x + self.out(ring_attention(q, k, v, rank, world))


def average_gradients(model, world):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    model = Block()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        gen = torch.Generator().manual_seed(step)
        full = torch.randn(2, LENGTH * world, WIDTH, generator=gen)
        x = full[:, rank * LENGTH:(rank + 1) * LENGTH]
        goal = full.mean(1, keepdim=True).expand_as(x)
        loss = (model(x, rank, world) - goal).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        average_gradients(model, world)
        opt.step()
        mean = loss.detach().clone()
        dist.reduce(mean, dst=0)
        if rank == 0:
            print(f"step {step} loss {mean.item() / world:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
