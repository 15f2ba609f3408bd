"""Block-wise draft model; batches without a usable block are left out."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

BLOCK, WIDTH, VOCAB = 6, 16, 20
STEPS, PATIENCE = 24, 3


class NoValidBlock(Exception):
    pass


def sample(step, rank):
    gen = torch.Generator().manual_seed(step * 64 + rank)
    length = 4 if (step + 2 * rank) % 7 == 3 else 12 + (step + rank) % 6
    return torch.randint(0, VOCAB, (4, length), generator=gen)


def anchors(tokens):
    if tokens.size(1) < BLOCK + 1:
        raise NoValidBlock(f"{tokens.size(1)} tokens are too few for a block of {BLOCK}")
    return tokens.unfold(1, BLOCK + 1, BLOCK).reshape(-1, BLOCK + 1)


def everybody(flag):
    t = torch.tensor([1 if flag else 0])
    dist.all_reduce(t, op=dist.ReduceOp.MIN)
    return bool(t.item())


class Stopper:
    def __init__(self, rank):
        self.rank, self.best, self.bad = rank, float("inf"), 0

    def __call__(self, value):
        if self.rank == 0:
            if value < self.best - 1e-2:
                self.best, self.bad = value, 0
            else:
                self.bad += 1
        box = [self.bad >= PATIENCE if self.rank == 0 else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]


class Draft(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, VOCAB)

    def forward(self, x):
        return self.out(torch.tanh(self.mix(self.emb(x))))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(9)
    net = DDP(Draft())
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    stop, left_out = Stopper(rank), 0
    for step in range(STEPS):
        blocks = None
        try:
            blocks = anchors(sample(step, rank))
        except NoValidBlock as e:
            print(f"[{rank}] step {step}: {e}", flush=True)
        if not everybody(blocks is not None):
            left_out += 1
            continue
        logits = net(blocks[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), blocks[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if stop(loss.item()):
            break
    dist.barrier()
    if rank == 0:
        print(f"ended after step {step}, {left_out} left out")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
