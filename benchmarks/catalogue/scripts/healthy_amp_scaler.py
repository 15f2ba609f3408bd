# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""bfloat16 autocast with a dynamic loss scale, gradient accumulation and clipping."""
import contextlib

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class LossScaler:
    def __init__(self, scale=2.0**126, growth=2.0, backoff=0.5, interval=50):
        self.value, self.growth, self.backoff, self.interval = scale, growth, backoff, interval
        self.good = self.skipped = 0

    def scale(self, loss):
        return loss.float() * self.value

    def unscale_(self, opt):
        bad = torch.zeros(1)
        for group in opt.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.mul_(1.0 / self.value)
                    if not torch.isfinite(p.grad).all():
                        bad.fill_(1.0)
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        return bool(bad.item())

    def update(self, overflow):
        if overflow:
            self.value, self.good = self.value * self.backoff, 0
            self.skipped += 1
        else:
            self.good += 1
            if self.good % self.interval == 0:
                self.value *= self.growth


class Mixer(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.fc1, self.fc2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(self.norm(x))))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(Mixer(), Mixer(), nn.Linear(16, 5)), gradient_as_bucket_view=True)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler, accumulate = LossScaler(), 2
    g = torch.Generator().manual_seed(100 + rank)
    for micro in range(24):
        last = micro % accumulate == accumulate - 1
        x = torch.randn(8, 16, generator=g) * 3
        y = torch.randint(0, 5, (8,), generator=g)
        with contextlib.nullcontext() if last else model.no_sync():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), y, reduction="sum") / accumulate
            scaler.scale(loss).backward()
        if last:
            overflow = scaler.unscale_(opt)
            if not overflow:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
            scaler.update(overflow)
            opt.zero_grad(set_to_none=False)
    if rank == 0:
        print(f"loss {loss.item() * accumulate:.3f}, skipped {scaler.skipped}, scale {scaler.value:.3g}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
