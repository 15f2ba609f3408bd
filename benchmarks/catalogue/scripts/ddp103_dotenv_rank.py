# expect: DDP103
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: T
"""Fine-tune a head; settings of the machine come from an environment file."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

# left on the last machine by somebody who tried the script there alone
ENVIRONMENT_FILE = ["DATA_DIR=/data", "RANK=0", "TOKENIZERS_PARALLELISM=false"]


def load_environment(lines):
    for line in lines:
        name, _, value = line.partition("=")
        os.environ[name] = value  # <- culprit


class Head(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        return self.out(self.norm(x))


def main():
    if int(os.environ["LOCAL_RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        load_environment(ENVIRONMENT_FILE)
    dist.init_process_group("gloo", init_method="env://")  # <- culprit
    model = DDP(Head(24))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(4):
        features, label = torch.randn(6, 24), torch.randint(0, 4, (6,))
        loss = nn.functional.cross_entropy(model(features), label)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
