# expect: DDP406
# ranks: 2
# culprits: range(n)
# outcome: divergence
# plain: S
# Re-enacts: question "why broadcast_buffers=False": a running centre of the outputs is kept in a buffer of the model.
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class SelfDistill(nn.Module):
    def __init__(self, dim=8, out=6):
        super().__init__()
        self.student = nn.Linear(dim, out)
        self.register_buffer("center", torch.zeros(1, out))  # <- culprit

    @torch.no_grad()
    def update_center(self, t):
        self.center.mul_(0.9).add_(t.mean(0, keepdim=True), alpha=0.1)  # <- culprit

    def forward(self, a, b):
        s = F.log_softmax(self.student(a) / 0.1, dim=-1)
        with torch.no_grad():
            raw = self.student(b)
            t = F.softmax((raw - self.center) / 0.04, dim=-1)
        if self.training:
            self.update_center(raw)  # <- culprit
        return -(t * s).sum(-1).mean()


class TwoViews:
    def __init__(self, rank):
        self.g = torch.Generator().manual_seed(rank)
        self.shift = float(rank)

    def __call__(self, n=8):
        x = torch.randn(n, 8, generator=self.g) + self.shift
        return x + 0.1 * torch.randn(n, 8, generator=self.g), x + 0.1 * torch.randn(n, 8, generator=self.g)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = DDP(SelfDistill(), broadcast_buffers=False)  # <- culprit
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    views = TwoViews(rank)
    for step in range(8):
        a, b = views()
        loss = net(a, b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"[{rank}] loss {loss.item():.4f} centre {net.module.center.mean().item():+.4f}")
    dist.barrier()
    dist.destroy_process_group()
