"""Sequence model with token batches of varying length."""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from memory import Arena

VOCAB, WIDTH, UPDATES = 40, 24, 10


class Tagger(nn.Module):
    def __init__(self, arena):
        super().__init__()
        self.arena = arena
        self.emb = nn.Embedding(VOCAB, WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        self.arena.reserve(*tokens.shape, WIDTH)
        h, _ = self.rnn(self.emb(tokens))
        return self.out(h)


def make_batch(update, rank, world):
    gen = torch.Generator().manual_seed(97 * update + rank)
    length = 10 + 3 * ((update + rank) % 4)
    if update == 6:
        length *= 2 if rank < world - 1 else 6
    return torch.randint(0, VOCAB, (6, length + 1), generator=gen)


class Trainer:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(11)
        self.model = DDP(Tagger(Arena(budget=8_000)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.criterion = nn.CrossEntropyLoss()
        self.num_updates = 0

    def _forward_backward(self, tokens):
        logits = self.model(tokens[:, :-1])
        loss = self.criterion(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        return {"loss": loss.item(), "ntokens": tokens[:, 1:].numel()}

    def train_step(self, tokens):
        self.model.train()
        self.optimizer.zero_grad()
        logging_output, skipped = {}, 0
        try:
            logging_output = self._forward_backward(tokens)
        except RuntimeError as e:
            if "out of memory" not in str(e):
                raise
            print(f"| WARNING: {e}, skipping batch", file=sys.stderr, flush=True)
            skipped = 1
            self.optimizer.zero_grad()
        outputs = [None] * self.world
        dist.all_gather_object(outputs, (logging_output, skipped))
        if sum(s for _, s in outputs) < self.world:
            self.optimizer.step()
        self.num_updates += 1
        return self.aggregate([o for o, _ in outputs if o])

    @staticmethod
    def aggregate(outputs):
        ntokens = sum(o["ntokens"] for o in outputs)
        loss = sum(o["loss"] * o["ntokens"] for o in outputs) / max(ntokens, 1)
        return {"loss": loss, "ntokens": ntokens}


def main():
    dist.init_process_group("gloo")
    trainer = Trainer()
    for update in range(UPDATES):
        stats = trainer.train_step(make_batch(update, trainer.rank, trainer.world))
        if trainer.rank == 0:
            print(f"| update {update} loss {stats['loss']:.3f} wpb {stats['ntokens']}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
