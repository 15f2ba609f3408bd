# expect: DDP602
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
"""Pre-training saves the wrapped model; fine-tuning loads into the bare one."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 10))

    def forward(self, x):
        return self.layers(x)


def steps(model, loss_of, count=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(count):
        x = torch.randn(8, 10)
        loss = loss_of(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def pretrain(path):
    model = DDP(Encoder())
    steps(model, nn.functional.mse_loss)
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)  # <- culprit
    dist.barrier()


def finetune(path):
    encoder = Encoder()
    encoder.load_state_dict(torch.load(path))  # <- culprit
    model = DDP(nn.Sequential(encoder, nn.Linear(10, 2)))
    steps(model, lambda out, x: nn.functional.cross_entropy(out, (x[:, 0] > 0).long()))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    name = [os.path.join(tempfile.mkdtemp(), "encoder.pt")]
    dist.broadcast_object_list(name, src=0)
    pretrain(name[0])
    finetune(name[0])  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
