"""Small vocoder: stage 1 on clean frames, stage 2 goes on from the snapshot with noisy frames."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from snapshots import SnapshotStore

MELS, HOP = 20, 32


class Vocoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(MELS, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.out = nn.Linear(64, HOP)

    def forward(self, mel):
        return torch.tanh(self.out(self.body(mel)))


def frames(generator, noise, batch=16):
    mel = torch.rand(batch, MELS, generator=generator)
    phase = torch.linspace(0, 6.28, HOP)
    target = 0.5 * torch.sin(phase * (1 + mel.mean(dim=1, keepdim=True)))
    return mel + noise * torch.randn(mel.shape, generator=generator), target


def build():
    torch.manual_seed(3)
    model = DDP(Vocoder())
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.8, 0.99))


def run_stage(name, model, optimizer, first, last, noise):
    g = torch.Generator().manual_seed(100 * first + dist.get_rank())
    for step in range(first, last):
        mel, target = frames(g, noise)
        loss = nn.functional.l1_loss(model(mel), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"{name}: step {last} l1 {mean.item() / dist.get_world_size():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    store = SnapshotStore("vocoder")

    model, optimizer = build()
    run_stage("clean", model, optimizer, 0, 20, noise=0.0)
    store.save(model, optimizer, step=20)
    del model, optimizer

    model, optimizer = build()
    start = store.restore(model, optimizer)
    run_stage("noisy", model, optimizer, start, start + 25, noise=0.2)
    store.remove()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
