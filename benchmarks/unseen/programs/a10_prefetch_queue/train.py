import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from prefetch import Prefetcher

DIM, BATCH, PER_RANK, EPOCHS = 6, 16, 320, 2


def export_csv(path, rank):
    g = torch.Generator().manual_seed(rank)
    lines = []
    for _ in range(PER_RANK):
        x = torch.randn(DIM, generator=g)
        lines.append(f"{int(x.mean() > 0)}|" + " ".join(f"{v:.4f}" for v in x.tolist()))
    if rank == dist.get_world_size() // 2:
        lines[201] = lines[201].replace(".", ",", 1)
    path.write_text("\n".join(lines))


def fit(model, records, epochs, on_epoch):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        correct = seen = 0
        for x, y in Prefetcher(records, BATCH):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            correct += (logits.argmax(1) == y).sum().item()
            seen += len(y)
        on_epoch(epoch, torch.tensor([correct, seen], dtype=torch.float64))


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["LOCAL_RANK"])

    def report(epoch, counts):
        dist.all_reduce(counts)
        if rank == 0:
            print(f"epoch {epoch} accuracy {(counts[0] / counts[1]).item():.3f}", flush=True)

    with tempfile.TemporaryDirectory() as tmp:
        source = Path(tmp) / "train.psv"
        export_csv(source, dist.get_rank())
        model = DDP(nn.Sequential(nn.Linear(DIM, 16), nn.ReLU(), nn.Linear(16, 2)))
        fit(model, source.read_text().splitlines(), EPOCHS, report)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
