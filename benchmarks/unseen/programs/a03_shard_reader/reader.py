import itertools
import struct
from pathlib import Path

import torch

RECORD = struct.Struct("<8fI")


def write_shards(folder, num_shards, records_per_shard):
    folder = Path(folder)
    for s in range(num_shards):
        n = records_per_shard if s < num_shards - 1 else records_per_shard // 2
        g = torch.Generator().manual_seed(s)
        with open(folder / f"part-{s:05d}.bin", "wb") as f:
            for _ in range(n):
                x = torch.randn(8, generator=g)
                f.write(RECORD.pack(*x.tolist(), int(x.sum() > 0)))


class ShardReader(torch.utils.data.IterableDataset):
    def __init__(self, folder, rank, world, batch_size):
        self.files = sorted(Path(folder).glob("part-*.bin"))[rank::world]
        self.batch_size = batch_size

    def records(self):
        for path in self.files:
            payload = path.read_bytes()
            for *x, y in RECORD.iter_unpack(payload):
                yield torch.tensor(x), y

    def __iter__(self):
        stream = self.records()
        while chunk := list(itertools.islice(stream, self.batch_size)):
            if len(chunk) < self.batch_size:
                return
            xs, ys = zip(*chunk)
            yield torch.stack(xs), torch.tensor(ys)
