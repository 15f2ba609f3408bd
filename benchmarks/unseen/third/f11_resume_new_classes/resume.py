"""Continue a run: only the first worker sees the checkpoint volume."""
import os
import tempfile

import torch
import torch.distributed as dist


def location():
    return os.path.join(os.environ.get("RUN_DIR", tempfile.gettempdir()),
                        f"mill_{os.environ['MASTER_PORT']}.pt")


def save(model, optimizer, step):
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "optim": optimizer.state_dict(), "step": step}, location())
    dist.barrier()


def resume(model, optimizer):
    box = [None]
    if dist.get_rank() == 0:
        box[0] = torch.load(location(), weights_only=True)
        os.unlink(location())
        model.module.load_state_dict(box[0]["model"])
    dist.broadcast_object_list(box, src=0)
    if dist.get_rank() != 0:
        model.module.load_state_dict(box[0]["model"])
    optimizer.load_state_dict(box[0]["optim"])
    return box[0]["step"]


@torch.no_grad()
def seed_classes(layer, features, labels, fresh):
    """Initialise the rows of new classes with the mean feature over all workers' examples."""
    for c in fresh:
        mine = features[labels == c]
        total = torch.cat([mine.sum(0), torch.tensor([float(len(mine))])])
        dist.all_reduce(total)
        if total[-1] > 0:
            mean = total[:-1] / total[-1]
            layer.weight[c] = mean / mean.norm().clamp_min(1e-6)
        layer.bias[c] = 0
    if dist.get_rank() == 0:
        layer.weight.mul_(0.9)
    dist.broadcast(layer.weight, src=0)
