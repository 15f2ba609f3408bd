# command: torchrun --standalone --nproc_per_node=2 broken.py
# plain: 1
# outcome: crash
# expect: DDP312
# culprits: 1
"""torch.distributed.pipelining: two stages, GPipe, but rank 1 expects more microbatches than rank 0 sends."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

MICROBATCHES = 4 if os.environ["RANK"] == "0" else 8


def main():
    dist.init_process_group("gloo")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(rank)
    part = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    stage = PipelineStage(part, rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.05)
    torch.manual_seed(0)
    for step in range(4):
        x, target = torch.randn(16, 8), torch.rand(16, 8)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        else:
            losses = []
            schedule.step(target=target, losses=losses)  # <- culprit
            print(f"step {step}: loss {torch.stack(losses).mean().item():.6f}")
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
