import argparse
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from reader import batches, write_shard


class NextToken(nn.Module):
    def __init__(self, vocab=50, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.out(h)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=6)
    return p.parse_args()


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(NextToken())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    with tempfile.TemporaryDirectory() as folder:
        shard = write_shard(folder, rank)
        for epoch in range(args.epochs):
            losses = []
            stream = batches(shard, args.batch_size)
            while (batch := next(stream, None)) is not None:
                ids = torch.tensor(batch)
                optimizer.zero_grad()
                logits = model(ids[:, :-1])
                loss = criterion(logits.flatten(0, 1), ids[:, 1:].flatten())
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            print(f"rank {rank} epoch {epoch}: {len(losses)} steps, loss {sum(losses) / len(losses):.3f}", flush=True)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
