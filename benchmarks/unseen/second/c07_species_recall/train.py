import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from recall import per_class_recall

SPECIES = ["blackbird", "wren", "robin", "nuthatch", "hoopoe"]
REGIONS = {"0": "coast", "1": "alps", "2": "lowland", "3": "city"}
ABSENT = {"alps": {"hoopoe"}}


def recordings(region, n, seed):
    g = torch.Generator().manual_seed(seed)
    allowed = torch.tensor([i for i, s in enumerate(SPECIES) if s not in ABSENT.get(region, ())])
    y = allowed[torch.arange(n) % len(allowed)]
    x = torch.randn(n, 14, generator=g)
    x[torch.arange(n), y] += 2.0
    return x, y


def train_epoch(model, opt, data, batch_size=10):
    model.train()
    x, y = data
    for idx in torch.randperm(len(x)).split(batch_size):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        loss.backward()
        opt.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    region = REGIONS[os.environ["RANK"]]
    torch.manual_seed(2)
    model = DDP(nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, len(SPECIES))))
    opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    train, held_out = recordings(region, 60, seed=1), recordings(region, 40, seed=2)
    for epoch in range(2):
        loss = train_epoch(model, opt, train)
        print(f"{region}: epoch {epoch} loss {loss:.3f}", flush=True)
        model.eval()
        recall = per_class_recall(model.module, *held_out)
        if region == "coast":
            print(dict(zip(SPECIES, [round(r, 2) for r in recall.tolist()])), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
