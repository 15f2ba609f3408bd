import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset

from data import Spectra, chunks


def build_model():
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 1))


def run_block(model, optimizer, loader, stats):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        stats["seen"] += 1
        if not torch.isfinite(loss):
            stats["dropped"] += 1
            continue
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        stats["loss"] += loss.item()


def summarize(stats):
    vec = torch.tensor([stats["loss"], float(stats["seen"] - stats["dropped"])])
    gathered = [torch.zeros_like(vec) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, vec)
    total = torch.stack(gathered).sum(0)
    return (total[0] / total[1]).item()


def main():
    dist.init_process_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = Spectra()
    mine = list(range(rank, len(data), world))
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(3):
        stats = {"seen": 0, "dropped": 0, "loss": 0.0}
        for block in chunks(mine, 9):
            loader = DataLoader(Subset(data, block), batch_size=3)
            run_block(model, optimizer, loader, stats)
        mean = summarize(stats)
        if rank == 0:
            print(f"epoch {epoch}: loss {mean:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
