# expect: DDP104
# ranks: 2
# culprits: range(1, n)
# outcome: hang
# plain: T
# Re-enacts: forum question, every process was given its own port "so that they do not clash" and start-up never ends.
import os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    port = int(os.environ["MASTER_PORT"]) + rank  # <- culprit
    os.environ["MASTER_PORT"] = str(port)  # <- culprit
    print(f"rank {rank}: port {port}", flush=True)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)  # <- culprit


def cleanup():
    dist.destroy_process_group()


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_basic(rank, world_size):
    setup(rank, world_size)
    torch.manual_seed(0)
    ddp_model = DDP(ToyModel())
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.001)
    for _ in range(3):
        optimizer.zero_grad()
        outputs = ddp_model(torch.randn(20, 10))
        loss_fn(outputs, torch.randn(20, 5)).backward()
        optimizer.step()
    cleanup()


if __name__ == "__main__":
    demo_basic(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
