# expect: DDP412
# ranks: 2
# culprits: range(n)
# outcome: any
# plain: S
# Re-enacts: tutorial comment: the batch-norm layers are converted once the model is already wrapped (warm-up with frozen norms).
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def conv_block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(conv_block(3, 6), conv_block(6, 6))
        self.head = nn.Conv2d(6, 5, 1)

    def forward(self, x):
        return self.head(self.backbone(x))


def freeze_norms(net):
    for m in net.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.eval()


def warmup(net, opt, gen, iters=4):
    net.train()
    freeze_norms(net)
    for it in range(iters):
        x = torch.randn(2, 3, 6, 6, generator=gen)
        loss = net(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = DDP(Detector())  # <- culprit
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net)  # <- culprit
    opt = torch.optim.SGD(net.parameters(), lr=1e-2)
    loss = warmup(net, opt, torch.Generator().manual_seed(rank))
    print(f"[{rank}] warm-up finished, loss {loss:.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
