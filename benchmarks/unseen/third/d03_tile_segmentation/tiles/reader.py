import json
import pathlib

import torch
import torch.distributed as dist

from .retry import ManifestError, retrying

FORMAT = 2


def export_region(root, region, tiles):
    """What the mapping service leaves per region; region 5 still comes from the old exporter."""
    doc = {"format": 1 if region == 5 else FORMAT, "region": region, "tiles": tiles}
    (pathlib.Path(root) / f"region{region:02d}.json").write_text(json.dumps(doc))


class TileReader:
    def __init__(self, root, regions):
        self.root = pathlib.Path(root)
        self.regions = list(regions)
        self.tiles = []
        self.total = 0

    def _manifest(self, region):
        path = self.root / f"region{region:02d}.json"
        doc = json.loads(path.read_text())
        if doc["format"] != FORMAT:
            path.write_text(json.dumps({**doc, "format": FORMAT}))
            raise ManifestError(f"{path.name} had format {doc['format']}, converted")
        return doc

    @retrying(times=3)
    def open(self):
        """Agree on the number of tiles, then read this rank's manifests."""
        total = torch.tensor([len(self.regions)])
        dist.all_reduce(total)
        self.total = int(total)
        self.tiles = [
            (region, tile)
            for region in self.regions
            for tile in range(self._manifest(region)["tiles"])
        ]
        return self

    def batches(self, size, epoch):
        g = torch.Generator().manual_seed(epoch)
        order = torch.randperm(len(self.tiles), generator=g).tolist()
        for i in range(0, len(order), size):
            yield self._render([self.tiles[j] for j in order[i:i + size]])

    def _render(self, tiles):
        images, masks = [], []
        for region, tile in tiles:
            g = torch.Generator().manual_seed(region * 100 + tile)
            mask = (torch.rand(8, 8, generator=g) > 0.6).long()
            images.append(torch.randn(3, 8, 8, generator=g) * 0.3 + mask)
            masks.append(mask)
        return torch.stack(images), torch.stack(masks)
