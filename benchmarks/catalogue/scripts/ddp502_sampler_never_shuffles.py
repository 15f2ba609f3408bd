# expect: DDP502
# ranks: 2
# culprits: range(n)
# outcome: any
# plain: S
# Re-enacts: issue "DistributedSampler can't shuffle the data set": every epoch comes in the same order.
import argparse
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("-e", "--epochs", type=int, default=3)
    ap.add_argument("-b", "--batch-size", type=int, default=5)
    ap.add_argument("--lr", type=float, default=0.1)
    return ap.parse_args()


def accuracy(logits, y):
    return (logits.argmax(1) == y).float().mean().item()


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(5)
    x = torch.randn(80, 9, generator=g)
    dataset = TensorDataset(x, (x[:, 0] > x[:, 1]).long())
    sampler = DistributedSampler(dataset, shuffle=True)  # <- culprit
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)

    torch.manual_seed(0)
    net = DDP(nn.Linear(9, 2))
    opt = torch.optim.SGD(net.parameters(), lr=args.lr)
    for epoch in range(args.epochs):  # <- culprit
        acc = 0.0
        for xb, yb in loader:  # <- culprit
            logits = net(xb)
            loss = nn.functional.cross_entropy(logits, yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            acc += accuracy(logits, yb) / len(loader)
        if rank == 0:
            print(f"epoch {epoch} accuracy {acc:.2%}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
