# expect: DDP110
# ranks: 2
# culprits: range(n)
# outcome: crash
# plain: E
# Re-enacts: issue "Unable to find address for: bond1": the interface name of another cluster is hard-wired in the script.
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def network_settings():
    os.environ["GLOO_SOCKET_IFNAME"] = "ib0"  # <- culprit
    os.environ.setdefault("OMP_NUM_THREADS", "1")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.fc = nn.Linear(4 * 8 * 8, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).flatten(1))


if __name__ == "__main__":
    network_settings()  # <- culprit
    dist.init_process_group(backend="gloo")  # <- culprit
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    gen = torch.Generator().manual_seed(rank)
    for it in range(3):
        img = torch.randn(4, 1, 8, 8, generator=gen)
        lab = torch.randint(0, 10, (4,), generator=gen)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(img), lab).backward()
        optimizer.step()
    print("rank", rank, "done")
    dist.destroy_process_group()
