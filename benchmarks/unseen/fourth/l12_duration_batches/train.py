"""Utterance classifier on recordings of different length."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from data import Recordings, manifest

EPOCHS = 2


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(6, 16, 5, padding=2)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        h = torch.relu(self.conv(x.transpose(1, 2)))
        return self.head(h.mean(-1))


def train_epoch(net, opt, data):
    net.train()
    for x, y in data:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


@torch.no_grad()
def evaluate(net, rank, world):
    net.eval()
    held_out = Recordings(manifest(24), rank, world, per_batch=12)
    hits = torch.zeros(2)
    for x, y in held_out:
        hits += torch.tensor([(net.module(x).argmax(1) == y).sum().item(), len(y)])
    everyone = [torch.zeros(2) for _ in range(world)]
    dist.all_gather(everyone, hits)
    hits = torch.stack(everyone).sum(0)
    return (hits[0] / hits[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = DDP(Classifier())
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    data = Recordings(manifest(), rank, world, per_batch=6)
    for epoch in range(EPOCHS):
        loss = train_epoch(net, opt, data)
        accuracy = evaluate(net, rank, world)
        if rank == 0:
            print(f"epoch {epoch} loss {loss:.3f} accuracy {accuracy:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
