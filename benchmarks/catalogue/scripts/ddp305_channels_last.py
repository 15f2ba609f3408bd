# expect: DDP305
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: S
import torch
import torch.distributed as dist
from torch import nn


def prefers_channels_last(rank, size):
    """A newer processor, for which somebody measured that this layout is faster."""
    return rank == size - 1


def build(fast_layout):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    if fast_layout:
        net = net.to(memory_format=torch.channels_last)  # <- culprit
    return net


def average_weights(net):
    with torch.no_grad():
        for p in net.parameters():
            dist.all_reduce(p)  # <- culprit
            p /= dist.get_world_size()


def local_steps(net, opt, count):
    for _ in range(count):
        image = torch.randn(2, 4, 10, 10)
        loss = (net(image) - image[:, :, 2:-2, 2:-2]).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
net = build(prefers_channels_last(rank, size))
torch.manual_seed(rank)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for round_number in range(3):
    loss = local_steps(net, opt, 2)
    average_weights(net)
    print(f"rank {rank} round {round_number} loss {loss:.3f}")
dist.destroy_process_group()
