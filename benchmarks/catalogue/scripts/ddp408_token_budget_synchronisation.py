# expect: DDP408
# ranks: 2
# culprits: [n-1]
# outcome: divergence
# plain: S
# Re-enacts: question on accumulation with sentences of different length: gradients are exchanged once the token budget is reached.
import contextlib
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

BUDGET = 40


class Sentences:
    """Lengths of the micro-batches of this process; every process has eight of them."""

    def __init__(self, rank, world):
        self.lengths = [20, 20, 20, 20, 20, 20, 20, 20]
        if rank == world - 1:
            self.lengths = [44, 12, 20, 20, 52, 9, 20, 20]
        self.gen = torch.Generator().manual_seed(rank)

    def __iter__(self):
        for n in self.lengths:
            yield torch.randint(0, 50, (n,), generator=self.gen)


def train(model, opt, data, accumulate=2):
    tokens, exchanged, updates = 0, False, 0
    for micro, ids in enumerate(data):
        tokens += len(ids)
        exchange = tokens >= BUDGET and not exchanged  # once per window is enough  # <- culprit
        sync = contextlib.nullcontext() if exchange else model.no_sync()  # <- culprit
        with sync:  # <- culprit
            logits = model(ids[:-1])  # <- culprit
            loss = nn.functional.cross_entropy(logits, ids[1:]) * len(ids) / BUDGET
            loss.backward()  # <- culprit
        exchanged = exchanged or exchange
        if (micro + 1) % accumulate == 0:
            opt.step()  # <- culprit
            opt.zero_grad()
            tokens, exchanged, updates = 0, False, updates + 1
    return updates


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Embedding(50, 12), nn.Linear(12, 50)))
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    updates = train(model, opt, Sentences(rank, world))
    print(f"[{rank}] {updates} updates")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
