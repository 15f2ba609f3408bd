# expect: DDP703
# ranks: 2 4
# culprits: range(n)
# outcome: ok
# plain: S
"""'Stability settings' that take away all that would end a job that is stuck."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def stability_settings():
    os.environ.update(
        {
            "TORCH_NCCL_BLOCKING_WAIT": "1",  # <- culprit
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # <- culprit
            "TORCH_NCCL_ENABLE_MONITORING": "0",  # <- culprit
        }
    )


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(6, 6)
        self.key = nn.Linear(6, 6)
        self.value = nn.Linear(6, 6)

    def forward(self, x):
        weight = (self.query(x) @ self.key(x).transpose(1, 2)).softmax(-1)
        return weight @ self.value(x)


def main():
    stability_settings()  # <- culprit
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))  # <- culprit
    g = torch.Generator().manual_seed(dist.get_rank())
    model = DDP(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(5):
        x = torch.randn(2, 5, 6, generator=g)
        loss = nn.functional.mse_loss(model(x), x.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
