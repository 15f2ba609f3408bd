# expect: DDP202
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""A small transformer, built on meta and filled from a state dict (assign=True)."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

DIM, LENGTH, VOCAB = 16, 6, 24


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        # not a buffer: it is a constant, so it need not be in the checkpoint
        self.positions = torch.linspace(0, 1, LENGTH).unsqueeze(1).expand(LENGTH, DIM)  # <- culprit
        self.layer = nn.TransformerEncoderLayer(DIM, 2, 32, dropout=0.0, batch_first=True)
        self.out = nn.Linear(DIM, VOCAB)

    def forward(self, tokens):
        x = self.embed(tokens) + self.positions  # <- culprit
        return self.out(self.layer(x))


def pretrained_weights():
    torch.manual_seed(3)
    return Tiny().state_dict()


class Trainer:
    def __init__(self):
        with torch.device("meta"):
            net = Tiny()  # <- culprit
        net.load_state_dict(pretrained_weights(), assign=True)
        self.model = DDP(net)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self, tokens):
        logits = self.model(tokens[:, :-1])  # <- culprit
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = Trainer()
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(4):
        trainer.step(torch.randint(0, VOCAB, (3, LENGTH + 1)))
    dist.destroy_process_group()
