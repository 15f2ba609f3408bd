"""Speech enhancement: a small denoising MLP trained with a scaled loss."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import manifest
from precision import LossScaler


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.enc = nn.Linear(manifest.FRAME, width)
        self.mid = nn.Linear(width, width)
        self.dec = nn.Linear(width, manifest.FRAME)

    def forward(self, x):
        h = torch.relu(self.enc(x))
        return x - self.dec(torch.relu(self.mid(h)))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Denoiser())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scaler = LossScaler()
    clips = manifest.shard(rank, world)

    for epoch in range(2):
        running = 0.0
        for clip in clips:
            noisy, clean = manifest.load(clip)
            loss = nn.functional.mse_loss(model(noisy), clean)
            optimizer.zero_grad()
            scaler.backward(loss)
            scaler.step(optimizer)
            running += loss.item()
        stats = torch.tensor([running, float(len(clips))])
        dist.all_reduce(stats)
        if rank == 0:
            print(f"epoch {epoch} loss {stats[0] / stats[1]:.4f} scale {scaler.scale:.0f}", flush=True)

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
