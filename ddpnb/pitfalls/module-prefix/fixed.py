"""Pre-train an encoder, then fine-tune it with a new head."""

import io

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(net, classes):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        x = torch.randn(16, 8)
        loss = nn.functional.cross_entropy(model(x), x[:, :classes].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = train(nn.Linear(8, 6), classes=6)
    file = io.BytesIO()
    torch.save(model.module.state_dict(), file)
    file.seek(0)

    encoder = nn.Linear(8, 6)
    encoder.load_state_dict(torch.load(file))
    train(nn.Sequential(encoder, nn.Tanh(), nn.Linear(6, 2)), classes=2)
    dist.destroy_process_group()


main()
