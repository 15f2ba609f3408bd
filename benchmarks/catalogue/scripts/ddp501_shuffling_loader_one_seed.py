# expect: DDP501
# ranks: 2
# culprits: range(n)
# outcome: any
# plain: S
# Re-enacts: forum question "no speed-up and the same curve as with one GPU": a plain shuffling loader with one seed for all.
import random
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader


def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)


class Houses(Dataset):
    def __init__(self, n=96):
        g = torch.Generator().manual_seed(123)
        self.x = torch.randn(n, 7, generator=g)
        self.y = self.x @ torch.arange(7.0) + 0.1 * torch.randn(n, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def get_loaders(batch_size):
    data = Houses()
    train = DataLoader(data, batch_size=batch_size, shuffle=True, drop_last=True)  # <- culprit
    return train


def train_one_epoch(model, loader, opt):
    total = 0.0
    for x, y in loader:  # <- culprit
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(loader)


def main():
    dist.init_process_group("gloo")
    set_seed(42)
    loader = get_loaders(batch_size=16)  # <- culprit
    model = DDP(nn.Sequential(nn.Linear(7, 14), nn.ReLU(), nn.Linear(14, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        avg = train_one_epoch(model, loader, opt)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {avg:.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
