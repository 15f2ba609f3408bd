"""Utterances of differing length, sharded round-robin and batched in the order of the manifest."""
import torch

DIM = 12


class Manifest:
    def __init__(self, n=96, seed=21):
        g = torch.Generator().manual_seed(seed)
        self.lengths = torch.randint(12, 30, (n,), generator=g).tolist()
        self.lengths[29] = 260          # an unsegmented recording
        self.proj = torch.randn(DIM, 6, generator=g)

    def load(self, i):
        g = torch.Generator().manual_seed(1000 + i)
        x = torch.randn(self.lengths[i], DIM, generator=g)
        return x, (x @ self.proj).argmax(-1)

    def shard(self, rank, world):
        return list(range(len(self.lengths)))[rank::world]


def iter_batches(manifest, ids, size):
    for at in range(0, len(ids) - size + 1, size):
        pairs = [manifest.load(i) for i in ids[at:at + size]]
        width = max(len(x) for x, _ in pairs)
        feats = torch.zeros(size, width, DIM)
        labels = torch.full((size, width), -100)
        for j, (x, y) in enumerate(pairs):
            feats[j, :len(x)], labels[j, :len(x)] = x, y
        yield {"feats": feats, "labels": labels, "ntokens": int((labels >= 0).sum())}
