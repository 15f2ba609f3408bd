# expect: DDP415
# ranks: 2
# culprits: range(n)
# outcome: divergence
# plain: S
# Re-enacts: question on fine-tuning with DDP: the backbone is unfrozen after the warm-up epoch.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class FineTuner(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU())
        self.classifier = nn.Linear(24, 4)

    def forward(self, x):
        return self.classifier(self.backbone(x))

    def set_backbone(self, trainable):
        for p in self.backbone.parameters():
            p.requires_grad_(trainable)  # <- culprit


def fit_epoch(model, opt, gen, batches=3):
    for _ in range(batches):
        x = torch.randn(8, 12, generator=gen)
        y = (x[:, :4]).argmax(1)
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = FineTuner()
    net.set_backbone(False)
    model = DDP(net)  # <- culprit
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    gen = torch.Generator().manual_seed(rank)
    for epoch in range(3):
        if epoch == 1:
            model.module.set_backbone(True)  # <- culprit
            if rank == 0:
                print("backbone unfrozen")
        fit_epoch(model, opt, gen)
    print(f"[{rank}] trained")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
