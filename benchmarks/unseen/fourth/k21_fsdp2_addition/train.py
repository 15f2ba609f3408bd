import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from report import append_report

DIGITS = 3
VOCAB = 12


class Additions(Dataset):
    """'abc+def' as tokens; the target is the last digit of the sum."""

    def __init__(self, n, seed=0):
        g = torch.Generator().manual_seed(seed)
        a = torch.randint(0, 10, (n, DIGITS), generator=g)
        b = torch.randint(0, 10, (n, DIGITS), generator=g)
        plus = torch.full((n, 1), 10)
        self.tokens = torch.cat([a, plus, b], 1)
        self.target = (a[:, -1] + b[:, -1]) % 10

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i], self.target[i]


class Adder(nn.Module):
    def __init__(self, width=32, layers=2):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, width)
        self.pos = nn.Parameter(torch.zeros(2 * DIGITS + 1, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.out = nn.Linear(width, 10)

    def forward(self, tokens):
        x = self.emb(tokens) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.out(x.mean(1))


def train(model, optimizer, loader, sampler, args, report_path):
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for tokens, target in loader:
            loss = F.cross_entropy(model(tokens), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG if args.avg else dist.ReduceOp.SUM)
        mean = mean if args.avg else mean / dist.get_world_size()
        if dist.get_rank() == 0:
            append_report(report_path, step, float(mean), model)
            print(f"epoch {epoch}: step {step}, loss {float(mean):.4f}")
        dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--avg", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Adder()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = Additions(512)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)
    report_path = os.path.join(tempfile.gettempdir(), f"addition-{os.environ['MASTER_PORT']}.jsonl")
    train(model, optimizer, loader, sampler, args, report_path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
