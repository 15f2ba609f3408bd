# expect: DDP109
# ranks: 2
# culprits: range(n)
# outcome: hang
# plain: T
# Re-enacts: issue "distributed gloo hangs in a forked child": a helper process agrees on a seed through the parent's group.
import multiprocessing as mp
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def augmentation_process(pipe, rounds):
    """Makes the augmented batches in a process of its own, with one seed for all ranks."""
    seed = torch.zeros(1, dtype=torch.int64)
    if dist.get_rank() == 0:
        seed.random_(0, 2 ** 31 - 1)
    dist.broadcast(seed, src=0)  # <- culprit
    gen = torch.Generator().manual_seed(int(seed) + dist.get_rank())
    for _ in range(rounds):
        pipe.send(torch.randn(8, 6, generator=gen).tolist())
    pipe.close()


class AugmentedData:
    def __init__(self, rounds):
        ctx = mp.get_context("fork")
        self.rounds = rounds
        self.recv, child_end = ctx.Pipe(duplex=False)
        self.proc = ctx.Process(target=augmentation_process, args=(child_end, rounds), daemon=True)
        self.proc.start()  # <- culprit

    def __iter__(self):
        for _ in range(self.rounds):
            yield torch.tensor(self.recv.recv())  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(6, 6))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for i, x in enumerate(AugmentedData(rounds=5)):  # <- culprit
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            print(i, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
