"""Leaf disease classifier (synthetic images), DDP with a compressed gradient exchange."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from wire import attach_compression


class Leaves(Dataset):
    def __init__(self, n=384):
        g = torch.Generator().manual_seed(8)
        self.labels = torch.randint(0, 5, (n,), generator=g)
        self.images = 0.5 * torch.randn(n, 3, 12, 12, generator=g)
        self.images[:, 0] += self.labels.view(-1, 1, 1) * 0.3

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class LeafNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1), nn.GroupNorm(3, 12), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.GroupNorm(3, 24), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.classify = nn.Linear(24, 5)

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(21)
    model = DDP(LeafNet())
    wire = attach_compression(model)
    print(f"rank {dist.get_rank()}: gradients as {wire}", flush=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = Leaves()
    sampler = DistributedSampler(data, shuffle=True, seed=4, drop_last=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        hits = torch.zeros(2)
        for images, labels in loader:
            logits = model(images)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += torch.tensor([(logits.argmax(1) == labels).sum().item(), len(labels)])
        dist.all_reduce(hits)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {hits[0] / hits[1]:.3f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
