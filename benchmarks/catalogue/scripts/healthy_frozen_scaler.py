# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
import contextlib
import math
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh())

    def forward(self, x):
        return self.layers(x)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 4))

    def freeze(self):
        for p in self.backbone.layers[:2].parameters():
            p.requires_grad = False
        return self

    def forward(self, x):
        return self.head(self.backbone(x))


def groups_of(n, size):
    """[(is_last_of_step, length_of_step)] for n micro-batches; the last step may be shorter."""
    out = []
    for i in range(n):
        start = i - i % size
        length = min(size, n - start)
        out.append((i - start == length - 1, length))
    return out


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = DDP(Classifier().freeze())
    trainable = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(trainable, lr=0.01)
    # starts far too high on purpose: the first steps are skipped until it fits
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 127, backoff_factor=0.125, growth_interval=1000)
    g = torch.Generator().manual_seed(5)
    x = torch.randn(world * 42, 10, generator=g)
    data = TensorDataset(x, x[:, :4].argmax(1))
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=6, sampler=sampler)
    plan = groups_of(len(loader), 3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        done = 0
        for (last, length), (xb, yb) in zip(plan, loader):
            with contextlib.nullcontext() if last else model.no_sync():
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    out = model(xb)
                loss = nn.functional.cross_entropy(out.float(), yb) / length
                scaler.scale(loss).backward()
            if last:
                scaler.unscale_(opt)
                norm = nn.utils.clip_grad_norm_(trainable, 1.0)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad(set_to_none=True)
                done += math.isfinite(norm.item())
        if rank == 0:
            print(f"epoch {epoch}: {done} good steps, scale {scaler.get_scale():g}", flush=True)
    sums = [None] * world
    dist.all_gather_object(sums, (scaler.get_scale(), [p.sum().item() for p in model.parameters()]))
    assert all(s == sums[0] for s in sums), sums
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
