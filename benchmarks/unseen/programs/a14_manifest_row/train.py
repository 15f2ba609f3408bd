import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from data import Manifest, write_manifest


def get_args():
    ap = argparse.ArgumentParser(description="speaker classification")
    ap.add_argument("--utts-per-rank", type=int, default=80)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--keep-partial", action=argparse.BooleanOptionalAction, default=True)
    return ap.parse_args()


def main():
    args = get_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "manifest.jsonl"
        write_manifest(path, args.utts_per_rank * world, args.keep_partial)
        data = Manifest(path, rank, world)
    loader = DataLoader(data, batch_size=args.batch_size)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(args.epochs):
        for feats, speakers in loader:
            loss = nn.functional.cross_entropy(model(feats), speakers)
            opt.zero_grad()
            loss.backward()
            opt.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch} loss {mean.item() / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
