# expect: DDP503
# ranks: 2 4
# culprits: any
# outcome: any
# plain: S
# Re-enacts: huggingface/datasets #3857, pytorch #70103 (unsorted file lists: every process has another order under DistributedSampler)
import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def crawl(folder, n=24):
    """Two crawls with overlapping names."""
    for sub in ("crawl-a", "crawl-b"):
        os.makedirs(os.path.join(folder, sub))
        for i in range(n if sub == "crawl-a" else n // 2):
            with open(os.path.join(folder, sub, f"doc{i:04d}.txt"), "w") as f:
                f.write(hashlib.sha256(str(i).encode()).hexdigest())


class Documents(Dataset):
    def __init__(self, root):
        self.root = root
        self.names = self._unique()

    def _unique(self):
        found = []
        for sub in sorted(os.listdir(self.root)):
            found += os.listdir(os.path.join(self.root, sub))
        return list(set(found))  # <- culprit

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        with open(os.path.join(self.root, "crawl-a", self.names[i])) as f:
            digits = [int(c, 16) for c in f.read()[:16]]
        x = torch.tensor(digits, dtype=torch.float32) / 16
        return x, x.mean()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [None]
    if rank == 0:
        box[0] = tempfile.mkdtemp()
        crawl(box[0])
    dist.broadcast_object_list(box, src=0)

    data = Documents(box[0])  # <- culprit
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=3, sampler=sampler)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(-1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"[{rank}] epoch {epoch} loss {loss.item():.4f} last file {data.names[-1]}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
