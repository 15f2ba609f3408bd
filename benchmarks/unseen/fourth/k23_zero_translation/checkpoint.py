import os

import torch
import torch.distributed as dist


def save(path, model, optimizer, epoch):
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() != 0:
        return
    state = {
        "model": model.module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": epoch,
    }
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def load_latest(path, model, optimizer):
    """Rank 0 reads the file, the others get its content."""
    box = [None]
    if dist.get_rank() == 0 and os.path.exists(path):
        box[0] = torch.load(path, map_location="cpu", weights_only=False)
    dist.broadcast_object_list(box, src=0)
    state = box[0]
    if state is None:
        return 0
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1
