# expect: DDP412
# ranks: 2 4
# culprits: 0
# outcome: any
# plain: S
"""Fine-tuning with frozen statistics (the norms stay in eval mode); rank 0 alone converts them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.head(x.mean((2, 3)))


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = DDP(Backbone())
        if dist.get_rank() == 0:  # <- culprit
            self.model.module = nn.SyncBatchNorm.convert_sync_batchnorm(self.model.module)  # <- culprit
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def train_mode(self):
        self.model.train()
        for module in self.model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()

    def fit(self, steps):
        self.train_mode()
        torch.manual_seed(dist.get_rank())
        for _ in range(steps):
            x, y = torch.randn(4, 1, 8, 8), torch.randint(0, 3, (4,))
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer().fit(8)
    dist.destroy_process_group()
