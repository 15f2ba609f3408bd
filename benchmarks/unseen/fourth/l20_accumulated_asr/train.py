"""Frame classifier with gradient accumulation."""
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

DIM, TOKENS, ACCUM = 14, 6, 3
EPOCHS, BATCH = 3, 4


class FrameNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Linear(DIM, 32)
        self.norm = nn.LayerNorm(32)
        self.back = nn.Linear(32, TOKENS)

    def forward(self, x):
        return self.back(torch.relu(self.norm(self.front(x))))


class Trainer:
    def __init__(self, dataset):
        self.rank = dist.get_rank()
        torch.manual_seed(8)
        self.model = DDP(FrameNet())
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=4e-3)
        self.sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
        self.loader = DataLoader(dataset, batch_size=BATCH, sampler=self.sampler, drop_last=True)

    def forward_step(self, x, y):
        return nn.functional.cross_entropy(self.model(x), y) / ACCUM

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        self.optim.zero_grad()
        total = torch.zeros(1)
        for batch_idx, (x, y) in enumerate(self.loader):
            context = nullcontext() if batch_idx % ACCUM == 0 else self.model.no_sync()
            with context:
                loss = self.forward_step(x, y)
                loss.backward()
            total += loss.item() * ACCUM
            if (batch_idx + 1) % ACCUM == 0:
                nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
                self.optim.step()
                self.optim.zero_grad()
        dist.all_reduce(total)
        return total.item() / (len(self.loader) * dist.get_world_size())


def main():
    dist.init_process_group("gloo")
    gen = torch.Generator().manual_seed(2)
    x = torch.randn(144, DIM, generator=gen)
    y = x[:, :TOKENS].argmax(1)
    trainer = Trainer(TensorDataset(x, y))
    for epoch in range(EPOCHS):
        loss = trainer.train_epoch(epoch)
        if trainer.rank == 0:
            print(f"epoch {epoch} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
