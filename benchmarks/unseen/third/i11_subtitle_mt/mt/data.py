"""Sentence pairs packed by a token budget: the number of batches differs between shards."""
import torch

PAD, VOCAB = 0, 24


class Subtitles:
    def __init__(self, n=220, seed=17):
        g = torch.Generator().manual_seed(seed)
        self.lengths = torch.randint(3, 14, (n,), generator=g).tolist()
        self.tokens = [torch.randint(1, VOCAB, (k,), generator=g) for k in self.lengths]

    def batches(self, rank, world, max_tokens):
        mine = sorted(range(rank, len(self.tokens), world), key=lambda i: (self.lengths[i], i))
        out, pack = [], []
        for i in mine:
            if pack and (len(pack) + 1) * self.lengths[i] > max_tokens:
                out.append(pack)
                pack = []
            pack.append(i)
        return out + [pack]

    def collate(self, pack):
        width = max(self.lengths[i] for i in pack)
        src = torch.full((len(pack), width), PAD)
        for row, i in enumerate(pack):
            src[row, :self.lengths[i]] = self.tokens[i]
        tgt = torch.where(src == PAD, PAD, (src * 5) % (VOCAB - 1) + 1)
        return {"src": src, "tgt": tgt, "ntokens": int((src != PAD).sum())}


class ShardedIterator:
    """Pads the shorter shards with empty entries up to the longest one."""

    def __init__(self, packs, world_length):
        self.packs, self.length = packs, world_length

    def __iter__(self):
        yield from self.packs
        for _ in range(self.length - len(self.packs)):
            yield []
