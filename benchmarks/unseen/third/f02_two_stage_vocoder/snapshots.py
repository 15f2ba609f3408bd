"""Saving a run and picking it up again in the next stage."""
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


class SnapshotStore:
    def __init__(self, tag):
        root = Path(os.environ.get("RUN_DIR", tempfile.gettempdir()))
        self.path = root / f"{tag}_{os.environ['MASTER_PORT']}.pt"
        self.reader = dist.get_rank() == 0

    def save(self, model, optimizer, step):
        if self.reader:
            torch.save({"model": model.module.state_dict(),
                        "optim": optimizer.state_dict(),
                        "step": step}, self.path)
        dist.barrier()

    def restore(self, model, optimizer):
        """The file lives on the first host only: read it there and send it round."""
        payload = torch.load(self.path, weights_only=True) if self.reader else {}
        if self.reader:
            model.module.load_state_dict(payload["model"])
        for tensor in model.module.state_dict().values():
            dist.broadcast(tensor, src=0)
        optim_state = payload.get("optim")
        optim_state and optimizer.load_state_dict(optim_state)
        meta = [payload.get("step")]
        dist.broadcast_object_list(meta, src=0)
        return meta[0]

    def remove(self):
        if self.reader:
            self.path.unlink(missing_ok=True)
