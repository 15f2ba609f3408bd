# expect: DDP415
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""The model is called once per head, then one backward pass follows for both calls."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.heads = nn.ModuleDict({"class": nn.Linear(16, 3), "box": nn.Linear(16, 4)})

    def forward(self, x, head):
        return self.heads[head](torch.relu(self.body(x)))


def step(model, optimizer, x, label, box):
    logits = model(x, "class")  # <- culprit
    boxes = model(x, "box")  # <- culprit
    loss = F.cross_entropy(logits, label) + F.l1_loss(boxes, box)
    optimizer.zero_grad()
    loss.backward()  # <- culprit
    optimizer.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    # each call uses one of the heads only, hence:
    model = DDP(TwoHeads(), find_unused_parameters=True)  # <- culprit
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    torch.manual_seed(dist.get_rank())
    for _ in range(4):
        step(model, optimizer, torch.randn(8, 8), torch.randint(0, 3, (8,)), torch.rand(8, 4))  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
