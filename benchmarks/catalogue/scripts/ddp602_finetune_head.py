# expect: DDP602
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Pre-train a backbone on one task, then fine-tune with a new head on another."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

CKPT = os.path.join(tempfile.gettempdir(), f"backbone-{os.environ.get('MASTER_PORT', '0')}.pt")


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.classifier = nn.Linear(16, classes)

    def forward(self, x):
        return self.classifier(self.backbone(x))


def toy_batches(n, classes, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        x = torch.randn(16, 10, generator=g)
        yield x, (x[:, :classes]).argmax(1)


def run(model, n, classes, seed, lr):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    first = last = None
    for x, y in toy_batches(n, classes, seed):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        first, last = first or loss.item(), loss.item()
    return first, last


def save(model):
    if dist.get_rank() == 0:
        state = {k: v for k, v in model.state_dict().items() if "classifier" not in k}  # <- culprit
        torch.save({"model": state}, CKPT)
    dist.barrier()


def load_backbone(model):
    # the head is new, hence not strict
    state = torch.load(CKPT, map_location="cpu")["model"]
    model.load_state_dict(state, strict=False)  # <- culprit
    return model


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pre = DDP(Net(classes=6))
    a = run(pre, 30, 6, seed=rank, lr=5e-3)
    save(pre)
    model = DDP(load_backbone(Net(classes=3)))
    b = run(model, 10, 3, seed=100 + rank, lr=1e-3)
    if rank == 0:
        print("pretrain %.3f -> %.3f" % a, "| finetune %.3f -> %.3f" % b)
    dist.barrier()
    if rank == 0:
        os.remove(CKPT)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
