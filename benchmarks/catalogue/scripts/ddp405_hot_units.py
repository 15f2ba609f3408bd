# expect: DDP405
# ranks: 2 4
# culprits: 0
# outcome: divergence
# plain: S
"""Vibration sensor regression. Units that run hot are cooled down between epochs."""

import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class PeakMeter:
    """Largest output of each hidden unit since the last reset."""

    def __init__(self, layer, width):
        self.peak = torch.zeros(width)
        layer.register_forward_hook(self._look)

    def _look(self, layer, inputs, output):
        with torch.no_grad():
            self.peak = torch.maximum(self.peak, output.detach().abs().amax(dim=0))

    def reset(self):
        self.peak.zero_()


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.hidden = nn.Linear(12, width)
        self.act = nn.ReLU()
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.act(self.hidden(x)))


def recordings(total=64):
    g = torch.Generator().manual_seed(11)
    x = torch.randn(total, 12, generator=g)
    # channel 0 of the logger clips now and then
    x[8::4] = x[8::4] * 40.0
    y = torch.tanh(x.sum(1, keepdim=True))
    return x, y


def cool(layer, meter, ceiling):
    """Shrink the fan-in of units above the ceiling."""
    hot = meter.peak > ceiling
    if int(hot.sum()):
        scale = (ceiling / meter.peak.clamp_min(ceiling)).unsqueeze(1)
        with torch.no_grad():
            layer.weight.mul_(scale)  # <- culprit
            layer.bias.mul_(scale.squeeze(1))  # <- culprit
    meter.reset()
    return int(hot.sum())


def end_of_epoch(model, meter, epoch):
    core = model.module
    n_hot = cool(core.hidden, meter, ceiling=12.0)  # <- culprit
    total = sum(p.double().abs().sum().item() for p in core.parameters())
    print(f"rank {dist.get_rank()} epoch {epoch}: {n_hot} cooled, |w| = {total:.6f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    net = Net()
    meter = PeakMeter(net.act, 24)
    model = DDP(net)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = recordings()
    x, y = x[rank::world], y[rank::world]
    for epoch in range(3):
        for xb, yb in zip(x.split(4), y.split(4)):
            opt.zero_grad()
            nn.functional.smooth_l1_loss(model(xb), yb).backward()
            opt.step()
        end_of_epoch(model, meter, epoch)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
