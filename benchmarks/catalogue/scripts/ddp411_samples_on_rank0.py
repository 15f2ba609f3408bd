# expect: DDP411
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
"""Character model; the trainer writes a sample now and then, on the main rank."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, CONTEXT = 26, 8


class CharModel(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))
        self.layer = nn.TransformerEncoderLayer(dim, 2, 24, dropout=0.1, batch_first=True)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        n = tokens.shape[1]
        return self.out(self.layer(self.embed(tokens), src_mask=self.mask[:n, :n]))


class Trainer:
    def __init__(self, sample_every=3):
        self.is_main = dist.get_rank() == 0
        self.sample_every = sample_every
        torch.manual_seed(0)
        self.model = DDP(CharModel())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    @torch.no_grad()
    def sample(self, length=6):
        self.model.eval()
        tokens = torch.zeros(1, 1, dtype=torch.long)
        for _ in range(length):
            logits = self.model(tokens[:, -CONTEXT:])[:, -1]  # <- culprit
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
        self.model.train()
        return "".join(chr(97 + t) for t in tokens[0].tolist())

    def train_step(self):
        tokens = torch.randint(0, VOCAB, (4, CONTEXT + 1))
        logits = self.model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def run(self, steps):
        for step in range(1, steps + 1):
            self.train_step()
            if step % self.sample_every == 0:
                if self.is_main:  # <- culprit
                    print(step, self.sample())  # <- culprit
                dist.barrier()


dist.init_process_group("gloo")
Trainer().run(7)
dist.barrier()
dist.destroy_process_group()
