import torch
import torch.distributed as dist


def share_weights(net):
    for p in net.parameters():
        dist.broadcast(p.data, src=0)


def average_gradients(net):
    grads = [p.grad for p in net.parameters()]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    at = 0
    for g in grads:
        g.copy_(flat[at:at + g.numel()].view_as(g))
        at += g.numel()
