import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

WIDTH, CLASSES, MICRO = 32, 5, 4


class FirstStage(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(16, WIDTH)

    def forward(self, x):
        return torch.relu(self.stem(x))


class MiddleStage(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU())

    def forward(self, x):
        return x + self.block(x)


class LastStage(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))

    def forward(self, x):
        return self.head(x)


def build_stage(rank, world):
    torch.manual_seed(100 + rank)
    if rank == 0:
        module = FirstStage()
    elif rank == world - 1:
        module = LastStage()
    else:
        module = MiddleStage()
    return module, PipelineStage(module, rank, world, torch.device("cpu"))


def batch_at(step, size=32):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(size, 16, generator=g)
    y = x[:, :CLASSES].argmax(1)
    return x, y


def train(rank, world, schedule, optimizer, steps):
    for step in range(steps):
        x, y = batch_at(step)
        losses = []
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        elif rank == world - 1:
            schedule.step(target=y, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        if (step + 1) % 20:
            continue
        loss = torch.zeros(1)
        if losses:
            loss.fill_(torch.stack(losses).detach().mean())
        dist.broadcast(loss, src=world - 1)
        if rank == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}")


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    module, stage = build_stage(rank, world)
    optimizer = torch.optim.Adam(module.parameters(), lr=5e-3)
    schedule = ScheduleGPipe(stage, MICRO, loss_fn=nn.functional.cross_entropy)
    train(rank, world, schedule, optimizer, steps=80)

    folder = [tempfile.mkdtemp(prefix="stages-") if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    state = {f"stage{rank}.{k}": v for k, v in module.state_dict().items()}
    dcp.save(state, checkpoint_id=folder[0])
    if rank == 0:
        print("checkpoint", sorted(os.listdir(folder[0])))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
