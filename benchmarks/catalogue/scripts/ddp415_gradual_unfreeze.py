# expect: DDP415
# also: DDP405
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
"""Transfer learning: the head first, then the backbone as well."""
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 16)
        self.block = nn.Linear(16, 16)

    def forward(self, x):
        return torch.relu(self.block(torch.relu(self.stem(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


class Phase:
    def __init__(self, name, epochs, parts, lr):
        self.name, self.epochs, self.parts, self.lr = name, epochs, parts, lr


class FineTuner:
    def __init__(self, net, phases):
        self.phases = phases
        self.freeze_all(net)
        self.set_trainable(net, phases[0].parts)
        self.model = DDP(net)  # <- culprit
        self.opt = None

    @staticmethod
    def freeze_all(net):
        for p in net.parameters():
            p.requires_grad_(False)

    @staticmethod
    def set_trainable(net, parts):
        for part in parts:
            for p in getattr(net, part).parameters():
                p.requires_grad_(True)  # <- culprit

    def begin(self, phase):
        self.set_trainable(self.model.module, phase.parts)  # <- culprit
        trainable = [p for p in self.model.parameters() if p.requires_grad]
        self.opt = torch.optim.SGD(trainable, lr=phase.lr)

    def fit(self, loader):
        loss_fn, epoch = nn.CrossEntropyLoss(), 0
        for phase in self.phases:
            self.begin(phase)  # <- culprit
            for _ in range(phase.epochs):
                loader.sampler.set_epoch(epoch)
                for x, y in loader:
                    loss = loss_fn(self.model(x), y)
                    self.opt.zero_grad()
                    loss.backward()
                    self.opt.step()
                epoch += 1
            if dist.get_rank() == 0:
                print(phase.name, f"loss {loss.item():.4f}", flush=True)


def flowers(count=96):
    gen = torch.Generator().manual_seed(8)
    x = torch.randn(count, 6, generator=gen)
    return TensorDataset(x, x[:, :3].argmax(1))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = flowers()
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, seed=1))
    tuner = FineTuner(Net(), [Phase("head", 1, ["head"], 0.1), Phase("all", 2, ["backbone", "head"], 0.05)])
    tuner.fit(loader)
    stem = tuner.model.module.backbone.stem.weight
    print(f"[{dist.get_rank()}] stem {stem.norm().item():.6f}", flush=True)
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()
