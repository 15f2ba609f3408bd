# expect: DDP704
# ranks: 2
# culprits: range(n)
# outcome: ok
# plain: L
# Re-enacts: question "CPU training gets slower with more processes": every process takes the threads of a big server.
import argparse
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=64, help="of the big server")  # <- culprit
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)  # <- culprit
    dist.init_process_group("gloo")  # <- culprit
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 32, generator=g)
    data = TensorDataset(x, x.flip(1))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for a, b in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(a), b)
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}, {torch.get_num_threads()} threads")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
