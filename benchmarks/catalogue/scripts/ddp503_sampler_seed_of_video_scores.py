# expect: DDP503
# ranks: 2
# culprits: any
# outcome: any
# plain: S
# Re-enacts: issue "ranks use divergent DistributedSampler seeds": the sampler is given the process's own random seed.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DataLoader, DistributedSampler


class Videos(Dataset):
    def __init__(self, n=64):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(3, 4, 4, generator=g), float(i % 5)


class Trainer:
    def __init__(self, base_seed=2024):
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        self.seed = base_seed * (self.rank + 1)  # every process draws its own noise  # <- culprit
        torch.manual_seed(self.seed)
        self.data = Videos()
        self.sampler = DistributedSampler(self.data, shuffle=True, seed=self.seed)  # <- culprit
        self.loader = DataLoader(self.data, batch_size=8, sampler=self.sampler, drop_last=True)
        self.model = DDP(nn.Sequential(nn.Flatten(), nn.Linear(48, 1)))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def train(self, epochs=2):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for clip, score in self.loader:  # <- culprit
                clip = clip + 0.05 * torch.randn_like(clip)
                loss = (self.model(clip).squeeze(1) - score.float()).pow(2).mean()
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            print(f"[{self.rank}] epoch {epoch}: {loss.item():.3f}", flush=True)
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    Trainer().train()
