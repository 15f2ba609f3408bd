# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: ZeroRedundancyOptimizer as in its tutorial: all processes consolidate, the first one writes.
import io
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def build(width=12, depth=4):
    torch.manual_seed(0)
    return nn.Sequential(*[m for _ in range(depth) for m in (nn.Linear(width, width), nn.Tanh())])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(build())
    opt = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-2)
    gen = torch.Generator().manual_seed(rank)
    for step in range(6):
        x = torch.randn(8, 12, generator=gen)
        loss = (model(x) - x.sign()).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 3 == 0:
            opt.consolidate_state_dict(to=0)
            if rank == 0:
                buf = io.BytesIO()
                torch.save({"model": model.module.state_dict(), "opt": opt.state_dict()}, buf)
                print(f"step {step}: loss {loss.item():.4f}, {buf.tell()} bytes", flush=True)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
