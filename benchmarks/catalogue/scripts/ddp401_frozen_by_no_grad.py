# expect: DDP401
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""Fine-tuning: the backbone runs without gradients, only the head learns."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class FineTune(nn.Module):
    def __init__(self, backbone, classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(24, classes)

    def forward(self, image):
        with torch.no_grad():  # <- culprit
            features = self.backbone(image)  # <- culprit
        return self.head(features)


def make_backbone():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 24),
        nn.Tanh(),
    )


def train(epochs: int) -> None:
    torch.manual_seed(0)
    images, labels = torch.randn(64, 1, 8, 8), torch.randint(0, 5, (64,))
    dataset = torch.utils.data.TensorDataset(images, labels)
    sampler = torch.utils.data.DistributedSampler(dataset)
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(FineTune(make_backbone(), 5))  # <- culprit
    optimizer = torch.optim.SGD(model.module.head.parameters(), lr=0.1)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)  # <- culprit
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(epochs=2)
    dist.destroy_process_group()
