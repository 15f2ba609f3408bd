"""Click events as a stream; each rank reads its own log partitions."""
import torch
from torch.utils.data import IterableDataset

# Partitions differ in size: one per data centre.
PARTITIONS = {"fra": 330, "iad": 410, "nrt": 150, "gru": 270, "syd": 90, "bom": 240, "cpt": 60}
CRAWLER = 5


def read_partition(name, rows):
    g = torch.Generator().manual_seed(sum(map(ord, name)))
    user = torch.randint(0, 40, (rows,), generator=g)
    item = torch.randint(0, 60, (rows,), generator=g)
    agent = torch.randint(0, 6, (rows,), generator=g)
    clicked = ((user + item) % 3 == 0).float()
    yield from zip(user, item, agent, clicked)


class ClickStream(IterableDataset):
    def __init__(self, rank, world):
        self.names = sorted(PARTITIONS)[rank::world]
        self.dropped = 0

    def __iter__(self):
        for name in self.names:
            for user, item, agent, clicked in read_partition(name, PARTITIONS[name]):
                if agent == CRAWLER:
                    self.dropped += 1
                    continue
                yield user, item, clicked
