# expect: DDP101
# ranks: 2 4
# culprits: range(n)
# outcome: crash
# plain: E
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def neutral_locale():
    """Numbers in CSV files are written differently elsewhere: drop every locale setting."""
    for name in [n for n in os.environ if n.startswith(("LC_", "LANG", "LOC"))]:
        os.environ.pop(name)  # <- culprit
    os.environ["LC_ALL"] = "C"


def make_loader(batch_size):
    g = torch.Generator().manual_seed(7)
    data = TensorDataset(torch.randn(96, 10, generator=g), torch.randint(0, 3, (96,), generator=g))
    return DataLoader(data, batch_size=batch_size, sampler=DistributedSampler(data))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    neutral_locale()
    local_rank = int(os.environ["LOCAL_RANK"])  # <- culprit
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    loader = make_loader(args.batch_size)
    model = DistributedDataParallel(nn.Linear(10, 3).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"[{dist.get_rank()}] epoch {epoch} loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
