import logging
from pathlib import Path

import torch

log = logging.getLogger("checkpoint")


class CheckpointManager:
    def __init__(self, folder, keep=2):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.keep = keep

    def save(self, step, model, optimizer):
        torch.save(
            {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()},
            self.folder / f"step{step:06d}.pt",
        )
        for old in sorted(self.folder.glob("step*.pt"))[: -self.keep]:
            old.unlink()

    def latest(self):
        return max(self.folder.glob("step*.pt"), default=None)

    def restore(self, model, optimizer):
        path = self.latest()
        if path is None:
            log.info("no checkpoint in %s", self.folder)
            return 0
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return state["step"]
