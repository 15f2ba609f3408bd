"""Fine-tune a (pretend) pretrained tabular encoder for churn prediction."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from callbacks import ProgressiveUnfreeze, Progress


class ChurnModel(nn.Module):
    def __init__(self, features=20, width=40):
        super().__init__()
        self.backbone = nn.ModuleList([
            nn.Sequential(nn.Linear(features if k == 0 else width, width), nn.LayerNorm(width), nn.SiLU())
            for k in range(3)])
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        for block in self.backbone:
            x = block(x)
        return self.head(x)


class Trainer:
    def __init__(self, model, optimizer, callbacks):
        self.model, self.optimizer, self.callbacks = model, optimizer, callbacks

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            loader.sampler.set_epoch(epoch)
            for cb in self.callbacks:
                cb.on_epoch_start(self, epoch)
            total = torch.zeros(())
            for x, y in loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.detach() / len(loader)
            for cb in self.callbacks:
                cb.on_epoch_end(self, epoch, total)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    x = torch.randn(576, 20)
    y = ((x[:, :4].sum(1) + x[:, 4] * x[:, 5]) > 0).long()
    data = TensorDataset(x, y)
    loader = DataLoader(data, batch_size=24, sampler=DistributedSampler(data, seed=1))

    net = ChurnModel()
    net.backbone.requires_grad_(False)
    model = DDP(net)
    optimizer = torch.optim.SGD(net.head.parameters(), lr=0.05, momentum=0.9)
    trainer = Trainer(model, optimizer, [ProgressiveUnfreeze(net.backbone), Progress()])
    trainer.fit(loader, epochs=4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
