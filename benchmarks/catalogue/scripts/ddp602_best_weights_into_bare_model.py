# expect: DDP602
# ranks: 2
# culprits: range(n)
# outcome: crash
# plain: E
# Re-enacts: issue "Missing key(s) in state_dict ... Unexpected key(s): module.": the best weights go into a bare model.
import os
import tempfile
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

WORKDIR = os.path.join(tempfile.gettempdir(), f"run_{os.environ['MASTER_PORT']}")


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))


def save(model, name):
    if dist.get_rank() == 0:
        os.makedirs(WORKDIR, exist_ok=True)
        torch.save(model.state_dict(), os.path.join(WORKDIR, name))  # <- culprit
    dist.barrier()


def train():
    model = DDP(make_model())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(4):
        x = torch.randn(8, 6, generator=g)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
    save(model, "best.pt")  # <- culprit


@torch.no_grad()
def test():
    model = make_model()
    model.load_state_dict(torch.load(os.path.join(WORKDIR, "best.pt")))  # <- culprit
    model.eval()
    x = torch.randn(64, 6)
    return ((model(x).argmax(1)) == (x[:, 0] > 0).long()).float().mean()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    acc = test()  # <- culprit
    print(f"rank {dist.get_rank()} accuracy {acc:.2f}")
    dist.destroy_process_group()
