# expect: DDP702
# also: DDP313
# ranks: 2
# culprits: any
# outcome: hang
# plain: T
# Re-enacts: issue "process hangs when starting a DDP experiment with the tracker": every process opens the same run.
import fcntl
import os
import tempfile
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class wandb:
    """Stub of the tracking package: one run directory, one service process at a time."""

    run = None

    @classmethod
    def init(cls, project, id):
        path = os.path.join(tempfile.gettempdir(), f"{project}-{id}.lock")
        cls.run = open(path, "w")
        fcntl.flock(cls.run, fcntl.LOCK_EX)  # <- culprit
        return cls

    @classmethod
    def log(cls, values, step):
        cls.run.write(f"{step} {values}\n")

    @classmethod
    def finish(cls):
        cls.run.close()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    wandb.init(project="tiny-lm", id=os.environ["MASTER_PORT"])  # <- culprit
    torch.manual_seed(0)
    model = DDP(nn.Linear(8, 8))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for step in range(4):
        x = torch.randn(4, 8, generator=g)
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        wandb.log({"loss": loss.item()}, step=step)
    wandb.finish()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
