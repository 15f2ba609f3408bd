"""Lesion detection on CT volumes."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from network import LesionNet
from volumes import CtVolumes


def run_epoch(model, loader, opt):
    seen = torch.zeros(2)
    for volume, lesion, weight in loader:
        losses = F.binary_cross_entropy_with_logits(model(volume), lesion, reduction="none")
        loss = (losses * weight).sum() / weight.sum().clamp(min=1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen += torch.tensor([loss.item(), 1.0])
    dist.all_reduce(seen)
    return (seen[0] / seen[1]).item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = CtVolumes()
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=2, sampler=sampler, num_workers=1, prefetch_factor=1)
    model = DDP(LesionNet())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        mean = run_epoch(model, loader, opt)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {mean:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
