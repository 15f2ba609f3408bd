# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: nanoGPT / torchtitan style accumulation with no_sync, last window shorter, frozen embedding, losses reduced in the background
import contextlib
import math

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, ACCUM, STEPS = 40, 4, 10


class Tiny(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.lm_head = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        h, _ = self.mix(self.wte(ids[:, :-1]))
        return nn.functional.cross_entropy(self.lm_head(self.drop(h)).flatten(0, 1), ids[:, 1:].flatten())


def stream(rank):
    g = torch.Generator().manual_seed(1337 + rank)
    while True:
        length = int(torch.randint(5, 12, (1,), generator=g))  # every process has its own lengths
        yield torch.randint(0, VOCAB, (3, length), generator=g)


class LossMeter:
    """Starts the reduction at once and looks at it when a line is printed."""

    def __init__(self):
        self.waiting = []

    def push(self, loss):
        t = loss.detach().clone()
        self.waiting.append((dist.all_reduce(t, async_op=True), t))

    def flush(self):
        for work, _ in self.waiting:
            work.wait()
        values = [t.item() / dist.get_world_size() for _, t in self.waiting]
        self.waiting.clear()
        return sum(values) / len(values)


def lr_at(update, base=3e-3, total=3):
    return base * 0.5 * (1 + math.cos(math.pi * update / total))


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
raw = Tiny()
raw.wte.requires_grad_(False)
model = DDP(raw)
opt = torch.optim.AdamW([p for p in raw.parameters() if p.requires_grad], lr=3e-3)
torch.manual_seed(rank)
data, meter, update = stream(rank), LossMeter(), 0
for micro in range(STEPS):
    window_end = (micro + 1) % ACCUM == 0 or micro + 1 == STEPS
    size = ACCUM if micro < STEPS // ACCUM * ACCUM else STEPS % ACCUM
    with contextlib.nullcontext() if window_end else model.no_sync():
        loss = model(next(data))
        (loss / size).backward()
    meter.push(loss)
    if window_end:
        nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
        for group in opt.param_groups:
            group["lr"] = lr_at(update)
        opt.step()
        opt.zero_grad(set_to_none=True)
        update += 1
        mean = meter.flush()
        if rank == 0:
            print(f"update {update}: loss {mean:.4f}", flush=True)
dist.barrier()
dist.destroy_process_group()
