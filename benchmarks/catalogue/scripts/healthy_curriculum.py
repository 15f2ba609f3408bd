# expect: none
# outcome: ok
# culprits: []
# plain: S
# ranks: 2 4
# Curriculum learning: rank 0 scores the samples with the current model, decides on the order of the next
# epoch and tells the others. The validation set is tiny, so all ranks evaluate all of it on purpose.
import logging
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset

rank = int(os.environ["RANK"])
world = int(os.environ["WORLD_SIZE"])
logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format=f"%(asctime)s r{rank} %(message)s")
log = logging.getLogger("curriculum")


def make_sets():
    g = torch.Generator().manual_seed(11)
    x = torch.randn(150, 6, generator=g)
    y = (x[:, 0] + 0.5 * x[:, 1] > 0).long()
    return TensorDataset(x[:120], y[:120]), TensorDataset(x[120:], y[120:])


def evaluate(net, data):
    net.eval()
    right = 0
    with torch.inference_mode():
        for x, y in DataLoader(data, batch_size=10):
            right += (net(x).argmax(1) == y).sum().item()
    net.train()
    return right / len(data)


def plan(net, data, epoch):
    """Rank 0 only: the easy half first, a little more of the hard half in every epoch, and shuffled."""
    with torch.no_grad():
        x, y = data.tensors
        loss = nn.functional.cross_entropy(net(x), y, reduction="none")
    keep = len(data) // 2 + 20 * epoch
    easy = loss.argsort()[:keep]
    mix = torch.randperm(keep, generator=torch.Generator().manual_seed(epoch))
    return easy[mix].tolist()


def agree(order):
    box = [order]
    dist.broadcast_object_list(box, src=0)
    return box[0]


dist.init_process_group("gloo")
torch.set_num_threads(1)
train, val = make_sets()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 2))
torch.manual_seed(100 + rank)          # from here on: other dropout masks per rank
ddp = DDP(net)
opt = torch.optim.Adam(ddp.parameters(), lr=0.02)
best = 0.0
for epoch in range(4):
    order = agree(plan(net, train, epoch) if rank == 0 else None)
    order = order[: len(order) // world * world]
    mine = Subset(train, order[rank::world])
    for x, y in DataLoader(mine, batch_size=8):
        opt.zero_grad()
        nn.functional.cross_entropy(ddp(x), y).backward()
        opt.step()
    acc = evaluate(ddp.module, val)
    best = max(best, acc)
    log.info("epoch %d: %d samples, accuracy %.2f", epoch, len(order), acc)

scores = [torch.zeros(1) for _ in range(world)]
dist.all_gather(scores, torch.tensor([best]))
assert all(s == scores[0] for s in scores), scores
assert best > 0.6
dist.barrier()
time.sleep(0.3)
dist.destroy_process_group()
