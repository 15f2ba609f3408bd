# expect: DDP106
# ranks: 2
# culprits: range(1, n)
# outcome: crash
# plain: E
# Re-enacts: forum question, a coordinator without GPU takes part on gloo while the workers ask for nccl.
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def role_of(rank):
    return "coordinator" if rank == 0 else "worker"


BACKEND = {
    "coordinator": "gloo",
    "worker": "nccl",  # <- culprit
}


def start():
    rank = int(os.environ["RANK"])
    role = role_of(rank)
    backend = BACKEND[role]  # <- culprit
    print(f"{role} {rank} starts with {backend}", flush=True)
    dist.init_process_group(backend)  # <- culprit
    return rank, role


def fit(rank, role, steps=5):
    torch.manual_seed(2)
    net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 2))
    net = DDP(net)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(rank)
    for step in range(steps):
        x = torch.randn(6, 2, 20, generator=g)
        y = torch.randint(0, 2, (6,), generator=g)
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if role == "coordinator":
            print(f"step {step}: {loss.item():.3f}")


if __name__ == "__main__":
    r, role = start()
    fit(r, role)
    dist.destroy_process_group()
