"""Toy translation with token-budget batches and a loss that is exact over the global batch."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from mt.batches import TokenBatches
from mt.corpus import PAD, VOCAB, ParallelCorpus, collate, probe_batch


class Tagger(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, source):
        return self.out(self.rnn(self.embed(source))[0])


def token_loss(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, reduction="sum")


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    corpus = ParallelCorpus(rank)
    loader = DataLoader(corpus, batch_sampler=TokenBatches(corpus.lengths, 100, seed=rank), collate_fn=collate)
    model = DDP(Tagger())
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    probe_source, probe_target = probe_batch()

    for epoch in range(3):
        model.train()
        for source, target in loader:
            tokens = (target != PAD).sum()
            dist.all_reduce(tokens)
            # DDP takes the mean over ranks; undo it and divide by the tokens of all ranks.
            loss = token_loss(model(source), target) * world / tokens
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            probe = token_loss(model(probe_source), probe_target) / (probe_target != PAD).sum()
        if rank == 0:
            print(f"epoch {epoch}: probe {probe:.4f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
