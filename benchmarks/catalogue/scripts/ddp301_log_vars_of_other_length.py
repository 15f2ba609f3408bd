# expect: DDP301
# also: DDP303
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: A
# Re-enacts: mmsegmentation #1030 / mmdetection #6495 / D-FINE #247 (log_vars of another length hang the reduction)
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class TinyLesions(Dataset):
    """Images sorted by patient: the healthy patients came in last."""

    def __init__(self, world, n_per_rank=6):
        g = torch.Generator().manual_seed(7)
        self.img = torch.randn(n_per_rank * world, 3, 8, 8, generator=g)
        self.mask = (torch.rand(n_per_rank * world, 8, 8, generator=g) > 0.6).long()
        for i in range(len(self.mask)):
            if i % world == world - 1 and i >= 2 * world:
                self.mask[i].zero_()

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        return self.img[i], self.mask[i]


class SegModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, img, mask):
        logits = self.head(F.relu(self.backbone(img)))
        losses = {"loss_seg": F.cross_entropy(logits, mask)}
        losses.update(self.statistics(logits.detach(), mask))
        return losses

    @staticmethod
    def statistics(logits, mask):
        out = {}
        pred = logits.argmax(1)
        out["acc_all"] = (pred == mask).float().mean()
        fg = mask > 0
        if fg.any():  # <- culprit
            out["acc_lesion"] = (pred[fg] == mask[fg]).float().mean()
        return out


def parse_losses(losses):
    log_vars = {k: v.mean() for k, v in losses.items()}
    loss = sum(v for k, v in log_vars.items() if "loss" in k)
    for name, value in log_vars.items():  # <- culprit
        value = value.data.clone()
        dist.all_reduce(value.div_(dist.get_world_size()))  # <- culprit
        log_vars[name] = value.item()
    return loss, log_vars


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(SegModel())
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    data = TinyLesions(world)
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False))
    for it, (img, mask) in enumerate(loader):
        loss, log_vars = parse_losses(model(img, mask))
        opt.zero_grad()
        loss.backward()  # <- culprit
        opt.step()
        if rank == 0:
            print(f"iter {it}", {k: round(v, 3) for k, v in log_vars.items()}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
