# expect: DDP301
# ranks: 2 4
# culprits: range(1, n)
# outcome: hang
# plain: R
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def gather_metrics(metrics):
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, metrics)  # <- culprit
    return everybody


class SummaryWriter:
    """Only the main process writes."""

    def __init__(self):
        self.is_main = dist.get_rank() == 0
        self.lines = []

    def write(self, epoch, metrics):
        if not self.is_main:  # <- culprit
            return  # <- culprit
        values = [m["loss"] for m in gather_metrics(metrics)]  # <- culprit
        self.lines.append(f"{epoch} {sum(values) / len(values):.4f}")


def run_epoch(model, opt, steps=4):
    running = 0.0
    for _ in range(steps):
        x = torch.randn(8, 4)
        loss = (model(x) - x.max(1, keepdim=True).values).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
    return {"loss": running / steps}


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    writer = SummaryWriter()
    metrics = run_epoch(model, opt)
    writer.write(0, metrics)
    print(*writer.lines, sep="\n")


if __name__ == "__main__":
    main()
