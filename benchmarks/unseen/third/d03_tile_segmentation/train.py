"""Road segmentation on map tiles, one set of regions per rank."""
import pathlib
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tiles.reader import TileReader, export_region

REGIONS = 12


class Segmenter(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.encode = nn.Conv2d(3, width, 3, padding=1)
        self.decode = nn.Conv2d(width, 2, 1)

    def forward(self, images):
        return self.decode(F.relu(self.encode(images)))


def storage(rank):
    box = [None]
    if rank == 0:
        box[0] = tempfile.mkdtemp(prefix="tiles")
        for region in range(REGIONS):
            export_region(box[0], region, tiles=4)
    dist.broadcast_object_list(box, src=0)
    return box[0]


def train(model, reader, optimizer, epochs):
    for epoch in range(epochs):
        seen = 0
        for images, masks in reader.batches(8, epoch):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), masks)
            loss.backward()
            optimizer.step()
            seen += len(images)
        stats = torch.tensor([loss.item() * seen, float(seen)])
        dist.all_reduce(stats)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {stats[0] / stats[1]:.4f} over {reader.total} regions", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    root = storage(rank)
    torch.manual_seed(11)
    model = DistributedDataParallel(Segmenter())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    reader = TileReader(root, range(rank, REGIONS, world)).open()
    train(model, reader, optimizer, epochs=4)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(pathlib.Path(root))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
