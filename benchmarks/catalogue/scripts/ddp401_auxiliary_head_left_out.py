# expect: DDP401
# ranks: 2
# culprits: range(n)
# outcome: crash
# plain: E
# Re-enacts: the classic "Expected to have finished reduction in the prior iteration": an auxiliary head is left out of the loss.
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class SegNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Conv2d(8, classes, 1)
        self.aux_head = nn.Conv2d(8, classes, 1)  # <- culprit

    def forward(self, x):
        low = F.relu(self.stem(x))
        high = F.relu(self.body(low))
        return {"out": self.head(high), "aux": self.aux_head(low)}


def criterion(outputs, target, aux_weight=0.0):
    loss = F.cross_entropy(outputs["out"], target)
    if aux_weight > 0:  # <- culprit
        loss = loss + aux_weight * F.cross_entropy(outputs["aux"], target)
    return loss


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(SegNet())  # <- culprit
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(rank)
    for it in range(3):
        x = torch.randn(2, 3, 8, 8, generator=g)
        y = torch.randint(0, 3, (2, 8, 8), generator=g)
        out = model(x)  # <- culprit
        loss = criterion(out, y)  # <- culprit
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"[{rank}] {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
