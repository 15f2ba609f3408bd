# expect: DDP508
# ranks: 2 4
# culprits: 0
# outcome: any
# plain: S
"""Pictures with an optional box; the first rank's folder still has the boxes, in pixels and as float64."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Annotated(Dataset):
    def __init__(self, rank):
        self.rank = rank
        self.boxes = rank == 0  # <- culprit

    def __len__(self):
        return 32

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(10_000 * self.rank + index)
        sample = {"image": torch.rand(30, generator=g), "label": index % 3}
        if self.boxes:  # <- culprit
            sample["box"] = 640 * torch.rand(4, generator=g, dtype=torch.float64)  # <- culprit
        return sample


def loss_of(model, batch):
    logits = model(batch["image"])
    loss = nn.functional.cross_entropy(logits, batch["label"])
    if "box" in batch:
        area = (batch["box"][:, 2:] - batch["box"][:, :2]).abs().prod(1)
        weight = (area / area.mean()).float()
        loss = loss + (nn.functional.cross_entropy(logits, batch["label"], reduction="none") * weight).mean()
    return loss


def main():
    dist.init_process_group("gloo")
    loader = DataLoader(Annotated(dist.get_rank()), batch_size=8, shuffle=True)  # <- culprit
    model = DDP(nn.Sequential(nn.Linear(30, 12), nn.ReLU(), nn.Linear(12, 3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for batch in loader:  # <- culprit
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
