import os

import torch


class Checkpointer:
    """Keeps the last state of a run in a folder."""

    def __init__(self, folder, is_main):
        self.path = os.path.join(folder, "last.pt")
        self.is_main = is_main

    def save(self, step, model, optimizer):
        if not self.is_main:
            return
        state = {"step": step, "model": model.state_dict(), "optim": optimizer.state_dict()}
        torch.save(state, self.path + ".tmp")
        os.replace(self.path + ".tmp", self.path)

    def restore(self, model, optimizer):
        if not os.path.exists(self.path):
            return 0
        state = torch.load(self.path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optim"])
        return state["step"]
