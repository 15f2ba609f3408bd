import torch

MIN_SECONDS, MAX_SECONDS = 1.0, 20.0


def manifest(total=144):
    """(id, seconds) of every recording of the corpus."""
    entries = []
    for i in range(total):
        seconds = 3.0 + (7 * i) % 13
        if i % 12 == 1:
            seconds += 22.0
        entries.append((i, seconds))
    return entries


class Recordings:
    def __init__(self, entries, rank, world, per_batch):
        shard = entries[rank::world]
        shard = shard[: len(entries) // world]
        self.entries = [e for e in shard if MIN_SECONDS <= e[1] <= MAX_SECONDS]
        self.per_batch = per_batch

    def __len__(self):
        return -(-len(self.entries) // self.per_batch)

    def __iter__(self):
        ordered = sorted(self.entries, key=lambda e: e[1])
        for at in range(0, len(ordered), self.per_batch):
            yield self.collate(ordered[at:at + self.per_batch])

    @staticmethod
    def collate(items):
        width = int(max(seconds for _, seconds in items)) * 4
        x = torch.zeros(len(items), width, 6)
        for row, (i, seconds) in enumerate(items):
            gen = torch.Generator().manual_seed(i)
            n = int(seconds) * 4
            x[row, :n] = torch.randn(n, 6, generator=gen)
        y = torch.tensor([i % 3 for i, _ in items])
        return x, y
