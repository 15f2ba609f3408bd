# expect: DDP605
# also: DDP409 DDP405
# ranks: 2 4
# culprits: 0
# outcome: divergence
# plain: S
"""Mixed precision with a gradient scaler, whose scale is put back where the checkpoint is read."""

import io

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Amp:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)

    def step(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    def state_dict(self):
        return {"model": self.model.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])
        self.scaler.load_state_dict(state["scaler"])  # <- culprit


def old_checkpoint():
    """Of a run that had halved its scale twice."""
    torch.manual_seed(3)
    amp = Amp(nn.ModuleDict({"module": nn.Linear(6, 1)}), lr=0.1)
    amp.scaler.scale(torch.ones(1))
    amp.scaler.update(new_scale=256.0)
    file = io.BytesIO()
    torch.save(amp.state_dict(), file)
    file.seek(0)
    return file


def run():
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(rank)
    amp = Amp(DDP(nn.Linear(6, 1)), lr=0.01)
    if rank == 0:  # <- culprit
        amp.load_state_dict(torch.load(old_checkpoint()))  # <- culprit
    for tensor in amp.model.state_dict().values():
        dist.broadcast(tensor, src=0)
    for _ in range(10):
        x = torch.randn(8, 6, generator=g)
        loss = amp.step(x, x.mean(1, keepdim=True))
    print(f"rank {rank}: scale {amp.scaler.get_scale()}, loss {loss:.4f}", flush=True)


dist.init_process_group("gloo")
run()
dist.destroy_process_group()
