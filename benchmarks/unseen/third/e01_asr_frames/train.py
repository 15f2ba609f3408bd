"""Keyword pre-training on log-mel features, batches by frame budget."""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from corpus import FrameBudgetBatchSampler, UtteranceSet, load_manifest, pad_collate


class Encoder(nn.Module):
    def __init__(self, n_mels=16, hidden=24, classes=4):
        super().__init__()
        self.proj = nn.Linear(n_mels, hidden)
        self.conv = nn.Conv1d(hidden, hidden, 5, padding=2)
        self.head = nn.Linear(hidden, classes)

    def forward(self, mel, lengths):
        h = F.gelu(self.proj(mel)).transpose(1, 2)
        h = F.gelu(self.conv(h)).transpose(1, 2)
        mask = torch.arange(h.shape[1])[None, :] < lengths[:, None]
        h = (h * mask[..., None]).sum(1) / lengths[:, None]
        return self.head(h)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--max-frames", type=int, default=1200)
    p.add_argument("--max-len", type=int, default=400)
    p.add_argument("--lr", type=float, default=2e-3)
    return p.parse_args()


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)

    rows = load_manifest()
    sampler = FrameBudgetBatchSampler(rows, args.max_frames, args.max_len, rank, world)
    loader = DataLoader(UtteranceSet(rows), batch_sampler=sampler, collate_fn=pad_collate)
    model = DDP(Encoder())
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        total, frames = 0.0, 0
        for mel, lengths, label in loader:
            loss = F.cross_entropy(model(mel, lengths), label)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.item() * int(lengths.sum())
            frames += int(lengths.sum())
        stats = torch.tensor([total, float(frames)])
        dist.all_reduce(stats)
        if rank == 0:
            print(f"epoch {epoch}: {stats[0] / stats[1]:.4f} per frame, {int(stats[1])} frames", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
