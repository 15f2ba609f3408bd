# expect: DDP605
# also: DDP301
# ranks: 2
# culprits: 0
# outcome: hang
# plain: T
# Re-enacts: issue on ZeroRedundancyOptimizer checkpoints: the state is consolidated inside the main process's save function.
import io
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


class Checkpointer:
    def __init__(self, model, optimizer, every):
        self.model, self.optimizer, self.every = model, optimizer, every

    def save(self, step):
        self.optimizer.consolidate_state_dict(to=0)  # <- culprit
        buf = io.BytesIO()
        torch.save({"model": self.model.module.state_dict(),
                    "optimizer": self.optimizer.state_dict(), "step": step}, buf)
        print(f"checkpoint at {step}: {buf.tell()} bytes", flush=True)

    def maybe_save(self, step):
        if step % self.every == 0 and dist.get_rank() == 0:  # <- culprit
            self.save(step)  # <- culprit
        dist.barrier()  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(*[nn.Linear(10, 10) for _ in range(4)]))
    opt = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    ckpt = Checkpointer(model, opt, every=3)
    g = torch.Generator().manual_seed(rank)
    for step in range(1, 7):
        x = torch.randn(4, 10, generator=g)
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        ckpt.maybe_save(step)  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
