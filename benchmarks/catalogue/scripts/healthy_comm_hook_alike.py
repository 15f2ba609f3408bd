# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""The same communication hook (half precision) on all ranks, and a static graph with checkpointing."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.inp = nn.Linear(5, dim)
        self.block = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU())
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.inp(x)
        for _ in range(2):
            x = x + checkpoint(self.block, x, use_reentrant=False)
        return self.out(x)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Net(), static_graph=True)
    model.register_comm_hook(None, fp16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(dist.get_rank())
    for _ in range(10):
        x = torch.randn(8, 5)
        loss = (model(x) - x.norm(dim=1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
