"""Fine-tune a small convolutional head on leaf photos."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from engine import Engine
from leaves import SPECIES, LeafPhotos


def build_model():
    trunk = nn.Sequential(nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.GroupNorm(3, 12), nn.ReLU(),
                          nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.ReLU())
    for p in trunk[0].parameters():
        p.requires_grad_(False)
    return nn.Sequential(trunk, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, len(SPECIES)))


def build_loader(dataset, batch_size):
    sampler = DistributedSampler(dataset, shuffle=True, seed=17, drop_last=True)
    return DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True)


class Report:
    def __call__(self, epoch, engine):
        if dist.get_rank() == 0:
            lr = engine.optimizer.param_groups[0]["lr"]
            print(f"[{epoch}] loss {engine.history[-1]:.4f} lr {lr:.4f}", flush=True)


def main():
    dist.init_process_group(backend="gloo")
    torch.manual_seed(0)
    loader = build_loader(LeafPhotos(), batch_size=10)
    model = DistributedDataParallel(build_model())
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    Engine(model, loader, optimizer, schedule, callbacks=[Report()]).fit(epochs=4)
    dist.barrier()


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
