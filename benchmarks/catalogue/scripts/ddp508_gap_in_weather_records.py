# expect: DDP508
# also: DDP414
# ranks: 2
# culprits: [n-1]
# outcome: any
# plain: S
# Re-enacts: forum question "weights turn nan on all GPUs at once": one station's record has a gap that was read as NaN.
import csv
import io
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader


def station_file(rank, world):
    """temperature, pressure, wind, target"""
    g = torch.Generator().manual_seed(rank)
    rows = [[f"{v:.3f}" for v in torch.randn(4, generator=g).tolist()] for _ in range(20)]
    if rank == world - 1:
        rows[9][1] = "nan"  # the sensor was being replaced
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    text.seek(0)
    return text


class Records(Dataset):
    def __init__(self, f):
        self.rows = [[float(v) for v in row] for row in csv.reader(f) if row]  # <- culprit

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        *x, y = self.rows[i]  # <- culprit
        return torch.tensor(x), torch.tensor(y)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(Records(station_file(rank, world)), batch_size=4)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for i, (x, y) in enumerate(loader):  # <- culprit
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)  # <- culprit
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"[{rank}] batch {i}: {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
