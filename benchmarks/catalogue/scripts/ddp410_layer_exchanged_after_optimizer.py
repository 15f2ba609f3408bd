# expect: DDP410
# ranks: 2
# culprits: range(n)
# outcome: any
# plain: S
# Re-enacts: forum question "loss does not move at all": a layer is exchanged after the optimizer was made.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Linear(10, 16)
        self.classifier = nn.Linear(16, classes)

    def forward(self, x):
        return self.classifier(torch.relu(self.features(x)))


def pretrained():
    torch.manual_seed(0)
    net = Net(classes=100)
    for p in net.features.parameters():
        p.requires_grad_(False)
    return net


def adapt(net, classes):
    net.classifier = nn.Linear(net.classifier.in_features, classes)  # <- culprit
    return net


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = pretrained()
    trainable = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trainable, lr=0.1, momentum=0.9)  # <- culprit
    net = DDP(adapt(net, classes=3))  # <- culprit
    g = torch.Generator().manual_seed(rank)
    for step in range(6):
        x = torch.randn(12, 10, generator=g)
        y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        loss = nn.functional.cross_entropy(net(x), y)
        net.zero_grad()
        loss.backward()
        optimizer.step()  # <- culprit
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
