# expect: DDP605
# also: DDP410
# ranks: 2 4
# culprits: any
# outcome: divergence
# plain: S
# Re-enacts: pytorch forum "resume DDP: optimizer state only on rank 0", diffusion codebases (guided-diffusion issue on resume)
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Config:
    steps: int = 4
    lr: float = 3e-3
    log_dir: str = ""


class TrainLoop:
    def __init__(self, cfg: Config, model: nn.Module):
        self.cfg = cfg
        self.step = 0
        self.raw = model
        self.path = os.path.join(cfg.log_dir, "ckpt.pt")
        self.opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
        self._load_parameters()
        self.model = DDP(model)
        self.gen = torch.Generator().manual_seed(1000 * dist.get_rank() + self.step)

    def _load_parameters(self):
        # DDP sends the weights of rank 0 to everybody, no need to read the file eight times
        if dist.get_rank() == 0 and os.path.exists(self.path):  # <- culprit
            state = torch.load(self.path)
            self.raw.load_state_dict(state["model"])
            self.opt.load_state_dict(state["opt"])  # <- culprit
        step = [self.step]
        if dist.get_rank() == 0 and os.path.exists(self.path):
            step = [state["step"]]
        dist.broadcast_object_list(step, src=0)
        self.step = step[0]

    def run(self):
        for _ in range(self.cfg.steps):
            x = torch.randn(8, 4, generator=self.gen)
            loss = ((self.model(x) - x.flip(1)) ** 2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()  # <- culprit
            self.step += 1
        if dist.get_rank() == 0:
            print(f"step {self.step} loss {loss.item():.4f}", flush=True)

    def save(self):
        if dist.get_rank() == 0:
            torch.save({"model": self.raw.state_dict(), "opt": self.opt.state_dict(), "step": self.step}, self.path)
        dist.barrier()


def build():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 16), nn.SiLU(), nn.Linear(16, 4))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    where = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(where, src=0)
    cfg = Config(log_dir=where[0])
    first = TrainLoop(cfg, build())
    first.run()
    first.save()
    again = TrainLoop(cfg, build())  # what happens after the job was pre-empted
    again.run()
    print(dist.get_rank(), "checksum", sum(p.sum().item() for p in again.raw.parameters()), flush=True)
    dist.barrier()
    dist.destroy_process_group()
