"""Sharded training checkpoints (DCP) and one consolidated file for serving."""
import json
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_state_dict, set_state_dict)


class Store:
    def __init__(self, root):
        self.root = root
        self.chief = dist.get_rank() == 0

    def save(self, net, opt, step):
        weights, optim = get_state_dict(net, opt)
        dcp.save({"net": weights, "opt": optim, "step": torch.tensor(step)},
                 checkpoint_id=os.path.join(self.root, f"step_{step}"))
        if not self.chief:
            return
        with open(os.path.join(self.root, "latest.json"), "w") as f:
            json.dump({"step": step}, f)

    def latest(self):
        dist.barrier()
        with open(os.path.join(self.root, "latest.json")) as f:
            return json.load(f)["step"]

    def restore(self, net, opt, step):
        weights, optim = get_state_dict(net, opt)
        state = {"net": weights, "opt": optim, "step": torch.tensor(0)}
        dcp.load(state, checkpoint_id=os.path.join(self.root, f"step_{step}"))
        set_state_dict(net, opt, model_state_dict=state["net"], optim_state_dict=state["opt"])
        return int(state["step"])

    def export(self, net):
        full = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if full:
            torch.save(full, os.path.join(self.root, "serving.pt"))
            time.sleep(0.4)     # the serving bucket is slow
        return len(full)
