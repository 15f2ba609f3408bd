# expect: DDP405
# ranks: 2
# culprits: range(n)
# outcome: divergence
# plain: S
# Re-enacts: question on continual learning: dead units are re-drawn during training with each process's own random state.
import argparse
import torch
from torch import nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class MLP(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.fc1 = nn.Linear(d, h)
        self.fc2 = nn.Linear(h, 1)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


@torch.no_grad()
def recycle_units(mlp, k=2):
    """Units with the smallest outgoing weights are given a fresh start."""
    weakest = mlp.fc2.weight.abs().sum(0).topk(k, largest=False).indices
    fresh = torch.empty(k, mlp.fc1.in_features)
    nn.init.kaiming_uniform_(fresh)  # <- culprit
    mlp.fc1.weight[weakest] = fresh  # <- culprit


def seed_everything(seed, rank):
    torch.manual_seed(seed + rank)  # augmentation has to differ between the processes  # <- culprit


def run(args):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    seed_everything(args.seed, rank)
    model = DDP(MLP(args.dim, args.hidden))
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    for it in range(1, args.iters + 1):
        x = torch.randn(16, args.dim)
        loss = (model(x).squeeze(1) - x.norm(dim=1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % args.recycle == 0:
            recycle_units(model.module)  # <- culprit
    print(f"[{rank}] {loss.item():.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--dim", type=int, default=5)
    ap.add_argument("--hidden", type=int, default=10)
    ap.add_argument("--lr", type=float, default=0.01)
    ap.add_argument("--iters", type=int, default=6)
    ap.add_argument("--recycle", type=int, default=3)
    run(ap.parse_args())
