# expect: DDP601
# also: DDP405
# ranks: 2 4
# culprits: 1
# outcome: divergence
# plain: S
"""If the checkpoint cannot be read the job starts from scratch; the copy of one rank is damaged."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def local_copy(rank, state):
    """What was copied to this node before the job; the second copy was cut off."""
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    torch.save(state, path)
    if rank == 1:
        os.truncate(path, os.path.getsize(path) // 2)
    return path


def try_resume(model, path):
    try:
        state = torch.load(path)  # <- culprit
        model.module.load_state_dict(state)  # <- culprit
    except Exception as error:  # <- culprit
        print("no usable checkpoint, starting from scratch:", type(error).__name__, flush=True)  # <- culprit
        return False
    return True


dist.init_process_group("gloo")
rank = dist.get_rank()

torch.manual_seed(7)
teacher = nn.Linear(10, 4)
path = local_copy(rank, teacher.state_dict())

torch.manual_seed(1000 + rank)
student = DistributedDataParallel(nn.Linear(10, 4))
try_resume(student, path)  # <- culprit
optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)

for _ in range(12):
    x = torch.randn(8, 10)
    with torch.no_grad():
        wanted = (teacher(x) * 1.1).softmax(1)
    loss = nn.functional.cross_entropy(student(x), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

os.remove(path)
os.rmdir(os.path.dirname(path))
print(f"rank {rank} done, loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
