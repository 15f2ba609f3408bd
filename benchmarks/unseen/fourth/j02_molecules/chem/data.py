"""Molecules of very different sizes; a rank draws its own stream."""
import torch


class MoleculeStream:
    def __init__(self, rank, per_step):
        self.gen = torch.Generator().manual_seed(100 + rank)
        self.per_step = per_step
        self.largest = 12 + 8 * (rank % 3)

    def _one(self):
        n = int(torch.randint(3, self.largest, (1,), generator=self.gen))
        xyz = torch.randn(n, 3, generator=self.gen)
        kind = torch.randint(0, 6, (n,), generator=self.gen)
        energy = xyz.norm(dim=1).sum() + kind.float().mean()
        return xyz, kind, energy

    def take(self):
        n = self.per_step - int(torch.randint(0, 4, (1,), generator=self.gen))
        return [self._one() for _ in range(n)]


def pack(molecules, max_atoms):
    """First-fit decreasing: bins of molecules with at most max_atoms atoms."""
    bins = []
    for mol in sorted(molecules, key=lambda m: -len(m[0])):
        for b in bins:
            if sum(len(m[0]) for m in b) + len(mol[0]) <= max_atoms:
                b.append(mol)
                break
        else:
            bins.append([mol])
    return bins
