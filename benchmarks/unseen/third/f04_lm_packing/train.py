"""Next-token model over packed sequences, one source per worker, accumulation of 4."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from accumulate import Accumulator
from corpus.packing import VOCAB, packed

MICRO = 8


class TinyLM(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.head(self.norm(hidden))


def micro_batches(rows, epoch):
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch))
    full = len(rows) // MICRO
    for k in range(full):
        yield rows[order[k * MICRO:(k + 1) * MICRO]]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(42)
    name, rows = packed(rank, world)
    model = DDP(TinyLM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    accumulator = Accumulator(model, optimizer, window=4)

    for epoch in range(3):
        nll = torch.zeros(2)
        for batch in micro_batches(rows, epoch):
            with accumulator.context():
                logits = model(batch[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
                accumulator.backward(loss)
            nll += torch.tensor([loss.item(), 1.0])
        accumulator.flush()
        dist.all_reduce(nll)
        if rank == 0:
            print(f"epoch {epoch}: nll {nll[0] / nll[1]:.3f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
