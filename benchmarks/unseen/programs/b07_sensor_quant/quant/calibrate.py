import torch
import torch.distributed as dist

from .observer import FakeQuant


def observers(model):
    return [m for m in model.modules() if isinstance(m, FakeQuant)]


@torch.no_grad()
def calibrate(model, batches, cfg):
    """Refreshes activation ranges; one pass over a few batches is enough."""
    if dist.get_rank() != cfg.leader:
        return
    net = model.module
    for obs in observers(net):
        obs.collecting = True
    net.eval()
    for x, _ in batches:
        net(x)
    net.train()
    for obs in observers(net):
        obs.finish()
    print(f"calibrated: {[round(o.amax.item(), 3) for o in observers(net)]}")
