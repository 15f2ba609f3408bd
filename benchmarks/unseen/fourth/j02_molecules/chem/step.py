import contextlib

import torch
import torch.distributed as dist

from .data import pack


def merge(group):
    xyz = torch.cat([m[0] for m in group])
    kind = torch.cat([m[1] for m in group])
    owner = torch.cat([torch.full((len(m[0]),), i) for i, m in enumerate(group)])
    return xyz, kind, owner, torch.stack([m[2] for m in group])


class PackedStep:
    """One optimizer step over all bins a rank has; gradients travel with the last one."""

    def __init__(self, model, optim, max_atoms):
        self.model = model
        self.optim = optim
        self.max_atoms = max_atoms

    def __call__(self, molecules):
        count = torch.tensor([float(len(molecules))])
        dist.all_reduce(count)
        scale = dist.get_world_size() / count.item()

        bins = pack(molecules, self.max_atoms)
        self.optim.zero_grad()
        total = 0.0
        for i, group in enumerate(bins):
            last = i + 1 == len(bins)
            ctx = contextlib.nullcontext() if last else self.model.no_sync()
            xyz, kind, owner, target = merge(group)
            with ctx:
                pred = self.model(xyz, kind, owner, len(group))
                loss = (pred - target).pow(2).sum() * scale
                loss.backward()
            total += loss.item()
        self.optim.step()
        return total, len(bins)
