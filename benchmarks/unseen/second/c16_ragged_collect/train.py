import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from collect import Parity, collect_notes, collect_rows


def detections(model, rank, epoch):
    g = torch.Generator().manual_seed(17 * rank + epoch)
    count = (rank * 3 + epoch * 2) % 6
    x = torch.randn(count, 5, generator=g)
    with torch.no_grad():
        scores = model.module(x)
    keep = scores[:, 0] > -10
    boxes = torch.cat([x[keep][:, :2], scores[keep]], 1)
    return boxes.half() if rank == 1 else boxes


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    stream = torch.Generator().manual_seed(rank)
    parity = Parity()
    for epoch in range(4):
        for _ in range(5):
            x = torch.randn(16, 5, generator=stream)
            loss = (model(x) - x.abs().sum(1, keepdim=True)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        root = epoch % world
        found = collect_rows(detections(model, rank, epoch), root)
        notes = {} if rank % 2 else {f"rank{rank}": round(parity.settle(loss.item()), 4)}
        if rank % 2:
            notes["odd"] = parity.settle(loss.item())
        merged = collect_notes(notes, root)
        if found is not None:
            expected = sum((r * 3 + epoch * 2) % 6 for r in range(world))
            assert len(found) == expected, (len(found), expected)
            print(f"epoch {epoch} on rank {rank}: {len(found)} boxes, {sorted(merged)}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
