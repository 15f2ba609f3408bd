import torch
import torch.distributed as dist
import torch.nn as nn

from mt.data import VOCAB, ShardedIterator, Subtitles
from mt.trainer import Trainer


class TokenMapper(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.mix = nn.Conv1d(dim, dim, 3, padding=1)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, src):
        e = self.emb(src)
        h = torch.relu(self.mix(e.transpose(1, 2)).transpose(1, 2))
        return self.out(e + h)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    corpus = Subtitles()
    packs = corpus.batches(rank, world, max_tokens=56)
    longest = max(len(corpus.batches(r, world, max_tokens=56)) for r in range(world))
    trainer = Trainer(TokenMapper(), dummy_batch=corpus.collate(packs[0]), lr=1e-2)

    for epoch in range(2):
        losses = []
        for pack in ShardedIterator(packs, longest):
            loss = trainer.train_step(corpus.collate(pack) if pack else None)
            if loss is not None:
                losses.append(loss)
        if rank == 0:
            print(f"epoch {epoch}: {len(losses)} updates, loss {sum(losses) / len(losses):.4f}", flush=True)
    print(f"rank {rank}: {len(packs)} own batches of {longest}, {trainer.skipped} too long", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
