# expect: DDP301
# ranks: 2
# culprits: [n-1]
# outcome: hang
# plain: T
# Re-enacts: forum question "random hang after a warning in the log": evaluation is wrapped in try/except on every process.
import logging
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("train")


def decode(record):
    kind, values = record
    if kind != "ok":
        raise ValueError(f"cannot decode record of kind {kind!r}")
    return torch.tensor(values)


def make_records(rank, world):
    records = [("ok", [float(i), float(rank), 1.0]) for i in range(4)]
    if rank == world - 1:
        records[2] = ("truncated", [])
    return records


def evaluate(net, records):
    total = torch.zeros(2)
    for r in records:
        x = decode(r)
        total[0] += net(x).detach().abs().sum()
        total[1] += 1
    dist.all_reduce(total)  # <- culprit
    return (total[0] / total[1]).item()


def safe_evaluate(net, records):
    try:
        return evaluate(net, records)  # <- culprit
    except Exception as e:  # <- culprit
        log.warning("evaluation skipped: %s", e)  # <- culprit
        return None


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = DDP(nn.Linear(3, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(torch.randn(5, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

score = safe_evaluate(net.module, make_records(rank, dist.get_world_size()))  # <- culprit
log.info("rank %d score %s", rank, score)
best = [score]
dist.broadcast_object_list(best, src=0)  # <- culprit
if rank == 0:
    torch.save(net.module.state_dict(), os.devnull)
dist.destroy_process_group()
