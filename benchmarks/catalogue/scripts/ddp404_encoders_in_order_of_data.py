# expect: DDP404
# ranks: 2
# culprits: [n-1]
# outcome: any
# plain: S
# Re-enacts: question on multi-modal training: encoders are made in the order in which their data turns up.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def first_records(rank, world):
    stream = [{"kind": "audio"}, {"kind": "text"}, {"kind": "audio"}, {"kind": "depth"}]
    if rank == world - 1:
        stream = [{"kind": "depth"}, {"kind": "audio"}, {"kind": "text"}, {"kind": "depth"}]
    return stream


class Fusion(nn.Module):
    def __init__(self, kinds, dim=6):
        super().__init__()
        self.encoders = nn.ModuleDict()
        for kind in kinds:  # <- culprit
            self.encoders[kind] = nn.Linear(dim, dim)  # <- culprit
        self.head = nn.Linear(dim, 1)

    def forward(self, inputs):
        return self.head(sum(self.encoders[k](v) for k, v in inputs.items()))


def build(rank, world):
    kinds = []
    for r in first_records(rank, world):  # <- culprit
        if r["kind"] not in kinds:
            kinds.append(r["kind"])
    torch.manual_seed(0)
    return Fusion(kinds)  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = DDP(build(rank, world))  # <- culprit
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(rank)
    for step in range(4):
        batch = {k: torch.randn(8, 6, generator=g) * s for k, s in (("audio", 1.0), ("depth", 0.1), ("text", 3.0))}
        loss = (net(batch).squeeze(1) - batch["text"].sum(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"[{rank}] final loss {loss.item():.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
