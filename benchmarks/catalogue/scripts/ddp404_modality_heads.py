# expect: DDP404
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH = 8


def synth_record(i, world, gen):
    kinds = ("audio", "text", "video")
    if i >= 24 * (world - 1):
        kinds = ("video", "text", "audio")  # the newest export lists its streams the other way round
    return {k: torch.randn(WIDTH, generator=gen) for k in kinds}


class Manifest:
    """Reads the part of the manifest that belongs to this rank."""

    def __init__(self, rank, world):
        gen = torch.Generator().manual_seed(77)
        records = [synth_record(i, world, gen) for i in range(24 * world)]
        self.records = records[rank * 24:(rank + 1) * 24]

    def streams(self):
        seen = []
        for record in self.records:
            for name in record:
                if name not in seen:
                    seen.append(name)  # <- culprit
        return seen

    def batches(self, size=6):
        for at in range(0, len(self.records), size):
            rows = self.records[at:at + size]
            yield {k: torch.stack([r[k] for r in rows]) for k in sorted(rows[0])}


class Fusion(nn.Module):
    def __init__(self, streams):
        super().__init__()
        self.towers = nn.ModuleDict()
        for name in streams:
            self.towers[name] = nn.Linear(WIDTH, WIDTH)  # <- culprit
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, batch):
        z = sum(torch.tanh(self.towers[k](v)) for k, v in batch.items())
        return self.head(z).squeeze(-1)


def target(batch):
    return batch["audio"].mean(1) - 2 * batch["video"].mean(1)


def fit(model, manifest, epochs=3):
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        total = 0.0
        for batch in manifest.batches():
            loss = F.mse_loss(model(batch), target(batch))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        mean = torch.tensor(total)
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {mean.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    manifest = Manifest(dist.get_rank(), dist.get_world_size())
    model = DDP(Fusion(manifest.streams()))  # <- culprit
    fit(model, manifest)
    audio = model.module.towers["audio"].weight
    print(f"[{dist.get_rank()}] audio tower {audio.norm():.5f}", flush=True)
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
