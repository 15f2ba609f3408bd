# expect: DDP307
# ranks: 2 4
# culprits: any
# outcome: hang
# plain: T
"""Ring attention: key/value blocks travel round the ring while every rank keeps its queries."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn


@dataclass
class Ring:
    rank: int
    size: int

    @property
    def following(self):
        return (self.rank + 1) % self.size

    @property
    def preceding(self):
        return (self.rank - 1) % self.size


class StripedSequence:
    """Striped layout balances causal attention: a rank owns stripes r and r + world of 2 * world."""

    def __init__(self, tokens, ring):
        stripes = tokens.chunk(2 * ring.size, dim=0)
        order = list(range(0, 2 * ring.size, 2)) + list(range(1, 2 * ring.size, 2))
        self.first = order[ring.rank]
        self.local = torch.cat([stripes[order[ring.rank]], stripes[order[ring.rank + ring.size]]])

    @property
    def talks_first(self):
        return self.first % 2 == 1  # <- culprit


def rotate(block, ring, talks_first):
    """Alternate the order so that neighbours do not wait for each other."""
    block = block.contiguous()
    incoming = torch.empty_like(block)
    if talks_first:  # <- culprit
        dist.send(block, ring.following)
        dist.recv(incoming, ring.preceding)
    else:
        dist.recv(incoming, ring.preceding)  # <- culprit
        dist.send(block, ring.following)
    return incoming


class RingAttention(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.scale = dim ** -0.5

    @torch.no_grad()
    def forward(self, seq, ring):
        q, k, v = self.qkv(seq.local).chunk(3, dim=-1)
        kv = torch.cat([k, v], dim=-1)
        acc = torch.zeros_like(v)
        norm = torch.zeros(len(v), 1)
        for hop in range(ring.size):
            k, v = kv.chunk(2, dim=-1)
            w = (q @ k.T * self.scale).exp()
            acc += w @ v
            norm += w.sum(-1, keepdim=True)
            if hop < ring.size - 1:
                kv = rotate(kv, ring, seq.talks_first)
        return acc / norm


def main():
    dist.init_process_group("gloo")
    ring = Ring(dist.get_rank(), dist.get_world_size())
    torch.manual_seed(0)
    attention = RingAttention()
    tokens = torch.randn(16 * ring.size, 8)
    for layer in range(2):
        seq = StripedSequence(tokens, ring)
        out = attention(seq, ring)
        print(f"[{ring.rank}] layer {layer} |out| {out.norm():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
