# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: fixed version of the validation threads: the first process evaluates the bare module and saves, the others wait.
import os
import tempfile
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * 36, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.bn(self.conv(x))).flatten(1))


@torch.no_grad()
def evaluate(net):
    net.eval()
    g = torch.Generator().manual_seed(1234)
    x = torch.randn(32, 1, 8, 8, generator=g)
    acc = (net(x).argmax(1) == x.flatten(1).sum(1).gt(0).long()).float().mean().item()
    net.train()
    return acc


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(ConvNet())
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    path = os.path.join(tempfile.gettempdir(), f"convnet_{os.environ['MASTER_PORT']}.pt")
    gen = torch.Generator().manual_seed(rank)
    best = -1.0
    for epoch in range(3):
        for _ in range(3):
            x = torch.randn(8, 1, 8, 8, generator=gen)
            y = x.flatten(1).sum(1).gt(0).long()
            opt.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            opt.step()
        if rank == 0:
            acc = evaluate(model.module)
            if acc > best:
                best = acc
                torch.save(model.module.state_dict(), path)
            print(f"epoch {epoch}: {acc:.3f}", flush=True)
        dist.barrier()
    model.module.load_state_dict(torch.load(path))
    dist.barrier()
    if rank == 0:
        os.remove(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
