# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
# Transfer learning in two phases: head only until the validation loss stalls, then everything, wrapped anew.
import time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 16), nn.GELU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


def wrap_frozen(net):
    net.backbone.requires_grad_(False)
    ddp = DistributedDataParallel(net)
    return ddp, torch.optim.AdamW(net.head.parameters(), lr=3e-2)


def wrap_unfrozen(net):
    net.backbone.requires_grad_(True)
    ddp = DistributedDataParallel(net)
    groups = [{"params": net.backbone.parameters(), "lr": 5e-3}, {"params": net.head.parameters(), "lr": 2e-2}]
    return ddp, torch.optim.AdamW(groups)


def run_epoch(ddp, loader, opt, criterion):
    ddp.train()
    for x, y in loader:
        opt.zero_grad(set_to_none=True)
        criterion(ddp(x), y).backward()
        opt.step()


@torch.no_grad()
def validate(ddp, loader, criterion):
    ddp.eval()
    total = torch.zeros(2)
    for x, y in loader:
        total += torch.tensor([criterion(ddp(x), y).item() * len(y), float(len(y))])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    dist.init_process_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    gen = torch.Generator().manual_seed(11)
    x = torch.randn(96, 10, generator=gen)
    y = (x[:, :3] + 0.2 * x[:, 3:6]).argmax(1)
    train_set, val_set = random_split(TensorDataset(x, y), [64, 32], generator=gen)
    sampler = DistributedSampler(train_set)
    train = DataLoader(train_set, batch_size=8, sampler=sampler)
    val = DataLoader(val_set, batch_size=8, sampler=DistributedSampler(val_set, shuffle=False))
    torch.manual_seed(5)
    net, criterion = Net(), nn.CrossEntropyLoss()

    ddp, opt = wrap_frozen(net)
    plateau = ReduceLROnPlateau(opt, patience=1)
    phase, best, stalled, history = 1, float("inf"), 0, []
    for epoch in range(7):
        sampler.set_epoch(epoch)
        run_epoch(ddp, train, opt, criterion)
        loss = validate(ddp, val, criterion)              # the same number on every rank
        history.append(loss)
        plateau.step(loss)
        stalled = 0 if loss < best - 0.05 else stalled + 1
        best = min(best, loss)
        if phase == 1 and (stalled >= 1 or epoch == 3):
            net = ddp.module
            del ddp, opt, plateau
            net.zero_grad(set_to_none=True)
            ddp, opt = wrap_unfrozen(net)
            plateau = ReduceLROnPlateau(opt, patience=1)
            phase, stalled = 2, 0
    assert phase == 2 and all(p.requires_grad for p in ddp.parameters())
    flat = torch.cat([p.detach().flatten() for p in ddp.parameters()])
    copies = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(copies, flat)
    assert all(torch.equal(c, flat) for c in copies)
    assert history[-1] < history[0]
    if rank == 0:
        print("validation", " ".join(f"{v:.3f}" for v in history))
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


main()
