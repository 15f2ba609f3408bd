import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from data.images import make_loader

HP = dict(samples=96, batch=12, lr=0.05, epochs=2)


class Loop:
    def __init__(self, hp):
        self.hp = hp
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        self.net = DDP(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 2)))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=hp["lr"])
        self.loader = make_loader(self.rank, hp["samples"], hp["batch"])

    def epoch(self):
        losses = []
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    def __call__(self):
        for e in range(self.hp["epochs"]):
            value = torch.tensor(self.epoch())
            dist.all_reduce(value)
            if not self.rank:
                print(f"epoch {e} loss {value.item() / dist.get_world_size():.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Loop(HP)()
    dist.destroy_process_group()
