"""Consolidated checkpoints that the plain (unsharded) inference server can load."""
import os

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict


class Checkpointer:
    def __init__(self, folder, every):
        self.folder, self.every = folder, every
        # rank 0 already does the console and the metrics; keep the disk away from it
        self.writer = dist.get_world_size() - 1

    @property
    def writes(self):
        return dist.get_rank() == self.writer

    def path(self, step):
        return os.path.join(self.folder, f"residue_lm_{step:05d}.pt")

    def maybe_save(self, model, step, metrics):
        if step % self.every or not self.writes:
            return
        weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        torch.save({"step": step, "weights": weights, "metrics": metrics}, self.path(step))
