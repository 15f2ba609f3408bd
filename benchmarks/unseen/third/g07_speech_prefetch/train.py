"""CTC-free keyword spotting: frames are extracted in a background thread while the model trains."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from audio.manifest import read_manifest
from audio.prefetch import Prefetcher


class Spotter(nn.Module):
    def __init__(self, bands=20, words=6):
        super().__init__()
        self.conv = nn.Conv1d(bands, 24, 3, padding=1)
        self.out = nn.Linear(24, words)

    def forward(self, frames):
        return self.out(F.relu(self.conv(frames)).mean(2))


def main():
    torch.manual_seed(3)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(Spotter())
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    entries = read_manifest()
    usable = len(entries) // world * world
    feed = Prefetcher(entries[rank:usable:world], depth=4)
    for step, (frames, word) in enumerate(feed):
        opt.zero_grad()
        loss = F.cross_entropy(model(frames), word)
        loss.backward()
        opt.step()
        if rank == 0 and step % 5 == 0:
            print(f"utterance {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
