import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from loss import clip_loss
from pairs import album_loader

CFG = {"epochs": 2, "batch_size": 8, "lr": 1e-3, "dim": 12}


class TwoTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, dim))
        self.text = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, dim))

    def forward(self, image, text):
        return self.image(image), self.text(text)


def main(cfg):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    album, loader = album_loader(rank, cfg["batch_size"])
    model = DDP(TwoTower(cfg["dim"]))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    for epoch in range(cfg["epochs"]):
        for i, (image, text) in enumerate(loader):
            loss = clip_loss(*model(image, text))
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 2 == 0:
                print(f"{album} {epoch}.{i} {loss.item():.4f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(CFG)
