import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


def run_dir(run_name):
    root = Path(tempfile.gettempdir()) / f"{run_name}-{os.environ['MASTER_PORT']}-{os.getppid()}"
    path = root / f"node{os.environ['RANK']}"
    path.mkdir(parents=True, exist_ok=True)
    return path


class Checkpointer:
    """Keeps checkpoints on the fast local disk of each node."""

    def __init__(self, run_name, model, optimizer):
        self.dir = run_dir(run_name)
        self.model = model
        self.optimizer = optimizer

    @property
    def latest(self):
        found = sorted(self.dir.glob("step_*.pt"))
        return found[-1] if found else None

    @property
    def is_writer(self):
        return dist.get_rank() == dist.get_world_size() - 1

    def save(self, step):
        if not self.is_writer:
            return
        state = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": step,
        }
        torch.save(state, self.dir / f"step_{step:06d}.pt")

    def maybe_resume(self):
        match self.latest:
            case None:
                return 0
            case path:
                state = torch.load(path, map_location="cpu", weights_only=True)
                self.model.module.load_state_dict(state["model"])
                self.optimizer.load_state_dict(state["optimizer"])
                return state["step"]
