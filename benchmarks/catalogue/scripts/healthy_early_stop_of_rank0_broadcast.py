# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: Lightning / timm style: evaluation, EMA, logging and checkpoints on rank 0 only, the decision is broadcast
import copy
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def is_main():
    return dist.get_rank() == 0


class Ema:
    def __init__(self, model, decay=0.8):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for e, v in zip(self.model.state_dict().values(), model.state_dict().values()):
            if e.is_floating_point():
                e.mul_(self.decay).add_(v, alpha=1 - self.decay)


class EarlyStopping:
    def __init__(self, patience):
        self.best, self.bad, self.patience = float("inf"), 0, patience

    def __call__(self, value):
        improved = value < self.best - 0.5
        self.best = min(self.best, value)
        self.bad = 0 if improved else self.bad + 1
        return self.bad >= self.patience, improved


@torch.no_grad()
def evaluate(net, data):
    net.eval()
    losses = [F.mse_loss(net(x), y).item() for x, y in DataLoader(data, batch_size=16)]
    return sum(losses) / len(losses)


def end_of_epoch(model, ema, stopper, val, path):
    verdict = torch.zeros(1)
    if is_main():
        score = evaluate(ema.model, val) + evaluate(model.module, val)  # the bare module: nothing is sent
        stop, improved = stopper(score)
        if improved:
            torch.save({"model": model.module.state_dict(), "ema": ema.model.state_dict()}, path)
        print(f"score {score:.3f} best {stopper.best:.3f}", flush=True)
        verdict.fill_(float(stop))
    dist.broadcast(verdict, src=0)
    model.train()
    return bool(verdict.item())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    path = os.path.join(folder[0], "best.pt")
    g = torch.Generator().manual_seed(1)
    x = torch.randn(24 * world, 5, generator=g)
    train, val = TensorDataset(x, x.sum(1, keepdim=True)), TensorDataset(x[:16] + 0.1, x[:16].sum(1, keepdim=True))
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)))
    ema = Ema(model.module) if is_main() else None
    stopper = EarlyStopping(patience=2) if is_main() else None
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=8, sampler=sampler)
    for epoch in range(8):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            F.mse_loss(model(xb), yb).backward()
            opt.step()
            if ema:
                ema.update(model.module)
        if end_of_epoch(model, ema, stopper, val, path):
            break
    dist.barrier()
    model.module.load_state_dict(torch.load(path, map_location="cpu")["model"])
    print(f"[{rank}] stopped in epoch {epoch}, best weights loaded", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
