# expect: DDP202
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""Build the network on the meta device to save memory, then give the blocks real storage."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self, width: int = 16, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.head(x)


def materialise(net: Net) -> Net:
    for layer in (net.stem, *net.blocks):  # <- culprit
        layer.to_empty(device="cpu")
        layer.reset_parameters()
    return net


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    with torch.device("meta"):
        net = Net()  # <- culprit
    net = materialise(net)
    model = DDP(net)  # <- culprit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        x = torch.randn(4, 8)
        loss = nn.functional.cross_entropy(model(x), torch.randint(0, 4, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
