import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from model import pretrained
from schedule import GradualUnfreeze

HP = {"epochs": 3, "steps": 10, "lr": 0.05, "head_epochs": 1}


def clips(rank, epoch, steps):
    gen = torch.Generator().manual_seed(rank * 50 + epoch)
    for _ in range(steps):
        x = torch.randn(12, 20, generator=gen)
        yield x, x[:, :5].argmax(1)


def main():
    dist.init_process_group("gloo")
    net = pretrained()
    model = DDP(net)
    opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=HP["lr"])
    unfreeze = GradualUnfreeze(net, opt, HP["head_epochs"])
    for epoch in range(HP["epochs"]):
        unfreeze.epoch_start(epoch)
        correct = seen = 0
        for x, y in clips(dist.get_rank(), epoch, HP["steps"]):
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            correct += (out.argmax(1) == y).sum().item()
            seen += len(y)
        acc = torch.tensor([correct / seen])
        dist.all_reduce(acc, op=dist.ReduceOp.SUM)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} train acc {acc.item() / dist.get_world_size():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
