# expect: DDP401
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""Image and audio model; the shard of the last rank has clips without sound."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TwoStreams(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(12, 16)
        self.audio = nn.Linear(6, 16)
        self.out = nn.Linear(16, 3)

    def forward(self, image, audio=None):
        features = self.image(image)
        if audio is not None:  # <- culprit
            features = features + self.audio(audio)  # <- culprit
        return self.out(torch.relu(features))


class Clips:
    def __init__(self, rank, world):
        self.g = torch.Generator().manual_seed(rank)
        self.silent = rank == world - 1  # <- culprit

    def next(self):
        image = torch.randn(4, 12, generator=self.g)
        audio = None if self.silent else torch.randn(4, 6, generator=self.g)  # <- culprit
        return image, audio, torch.randint(0, 3, (4,), generator=self.g)


class Trainer:
    def __init__(self):
        torch.manual_seed(2)
        self.clips = Clips(dist.get_rank(), dist.get_world_size())
        self.model = DDP(TwoStreams())  # <- culprit
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.criterion = nn.CrossEntropyLoss()

    def train_step(self):
        image, audio, label = self.clips.next()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.criterion(self.model(image, audio), label)  # <- culprit
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, steps):
        return [self.train_step() for _ in range(steps)]


dist.init_process_group("gloo")
Trainer().fit(6)
dist.destroy_process_group()
