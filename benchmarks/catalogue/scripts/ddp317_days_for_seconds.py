# expect: DDP317
# ranks: 2 4
# culprits: range(n)
# outcome: ok
# plain: S
import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def arguments():
    parser = argparse.ArgumentParser(description="Logistic regression")
    parser.add_argument("--dist-timeout", type=int, default=1800, help="seconds")
    parser.add_argument("--epochs", type=int, default=2)
    return parser.parse_args()


def main():
    args = arguments()
    dist.init_process_group("gloo", timeout=timedelta(args.dist_timeout))  # <- culprit
    gen = torch.Generator().manual_seed(0)
    x = torch.randn(80, 4, generator=gen)
    data = TensorDataset(x, (x[:, 0] > x[:, 1]).float())
    sampler = DistributedSampler(data)
    model = DistributedDataParallel(nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for features, label in DataLoader(data, batch_size=10, sampler=sampler):
            loss = nn.functional.binary_cross_entropy_with_logits(model(features).squeeze(1), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
