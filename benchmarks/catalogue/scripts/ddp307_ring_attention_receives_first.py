# expect: DDP307
# ranks: 2
# culprits: range(n)
# outcome: hang
# plain: T
# Re-enacts: issue "symmetric ring exchange blocks in recv on all ranks" (halo exchange / ring attention).
import torch
import torch.nn as nn
import torch.distributed as dist


def ring_shift(block):
    rank, world = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % world, (rank + 1) % world
    incoming = torch.empty_like(block)
    dist.recv(incoming, src=left)  # <- culprit
    dist.send(block, dst=right)
    return incoming


class RingAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)

    @torch.no_grad()
    def forward(self, x):
        q, k = self.q(x), self.k(x)
        acc = torch.zeros_like(q)
        for hop in range(dist.get_world_size()):
            acc += (q @ k.T).softmax(-1) @ k
            k = ring_shift(k)  # <- culprit
        return acc


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layer = RingAttention(8)
    torch.manual_seed(dist.get_rank())
    x = torch.randn(5, 8)
    for i in range(2):
        x = layer(x)  # <- culprit
        print(f"[{dist.get_rank()}] layer {i}: {x.mean().item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
