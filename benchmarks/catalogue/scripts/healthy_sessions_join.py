# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
# Sessions have very different lengths, so the ranks have different numbers of batches.
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_

CLICKS = [9, 4, 13, 6, 7, 3, 11, 5]


class Ranker(nn.Module):
    def __init__(self, items=40, dim=12):
        super().__init__()
        self.items = nn.Embedding(items, dim)
        self.drop = nn.Dropout(0.2)
        self.score = nn.Linear(dim, items)

    def forward(self, seq):
        return self.score(self.drop(self.items(seq).mean(1)))


def sessions(rank, world):
    for sid in range(rank, len(CLICKS), world):
        g = torch.Generator().manual_seed(sid)
        for _ in range(CLICKS[sid] // 2):
            seq = torch.randint(0, 40, (4, 5), generator=g)
            yield seq, (seq[:, 0] * 3 + 1) % 40


def mask_some(seq, generator):
    """Augmentation: a few clicks are forgotten, other ones on each rank."""
    return torch.where(torch.rand(seq.shape, generator=generator) < 0.1, torch.zeros_like(seq), seq)


def same_everywhere(model):
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    others = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(others, flat)
    return all(torch.equal(flat, o) for o in others)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Ranker())
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.8)
    torch.manual_seed(1000 + rank)            # dropout
    noise = torch.Generator().manual_seed(2000 + rank)
    for epoch in range(2):
        total, batches = 0.0, 0
        with model.join():
            for seq, target in sessions(rank, world):
                opt.zero_grad()
                loss = nn.functional.cross_entropy(model(mask_some(seq, noise)), target)
                loss.backward()
                clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                total += loss.item()
                batches += 1
        sched.step()
        stats = torch.tensor([total, float(batches)])
        dist.all_reduce(stats)
        print(f"rank {rank} epoch {epoch}: {batches} batches, all {stats[0] / stats[1]:.4f}", flush=True)
    assert same_everywhere(model)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
