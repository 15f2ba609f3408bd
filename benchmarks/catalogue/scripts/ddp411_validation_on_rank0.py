# expect: DDP411
# ranks: 2
# culprits: [0]
# outcome: hang
# plain: T
# Re-enacts: issue "torch.distributed.barrier() makes the whole code hang": validation of the wrapped model on the first process.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class ImgClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        return self.fc(x.flatten(1))


def train_loop(net, opt, loss_fn, gen):
    net.train()
    for _ in range(3):
        x = torch.randn(4, 3, 8, 8, generator=gen)
        y = torch.randint(0, 10, (4,), generator=gen)
        opt.zero_grad()
        loss_fn(net(x), y).backward()
        opt.step()


def validation(net, loss_fn):
    net.eval()
    total = 0.0
    with torch.no_grad():
        for _ in range(3):
            out = net(torch.randn(4, 3, 8, 8))  # <- culprit
            total += loss_fn(out, torch.zeros(4, dtype=torch.long)).item()
    return total / 3


def main():
    dist.init_process_group("gloo")
    gpu = dist.get_rank()
    torch.manual_seed(0)
    net = DDP(ImgClassifier())
    opt = torch.optim.SGD(net.parameters(), lr=1e-2)
    loss_fn = nn.CrossEntropyLoss()
    gen = torch.Generator().manual_seed(gpu)
    for epoch in range(2):
        train_loop(net, opt, loss_fn, gen)
        if gpu == 0:  # <- culprit
            print("epoch", epoch, "validation", validation(net, loss_fn), flush=True)  # <- culprit
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
