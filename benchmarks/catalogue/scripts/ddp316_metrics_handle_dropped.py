# expect: DDP316
# ranks: 2
# culprits: range(n)
# outcome: any
# plain: S
# Re-enacts: forum question "all_reduce(async_op=True) returns my own value": the work handle is dropped.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, v):
        self.sum += v
        self.count += 1

    @property
    def avg(self):
        return self.sum / max(1, self.count)


def average_across_ranks(value):
    value = value.detach().clone().reshape(1).expand(1024).contiguous()
    dist.all_reduce(value, async_op=True)  # <- culprit
    return value.div_(dist.get_world_size())[0].item()  # <- culprit


def train(model, opt, steps, rank):
    meter = AverageMeter()
    gen = torch.Generator().manual_seed(rank)
    for step in range(steps):
        x = torch.randn(16, 9, generator=gen)
        loss = nn.functional.smooth_l1_loss(model(x), x[:, :2])
        opt.zero_grad()
        loss.backward()
        opt.step()
        meter.update(average_across_ranks(loss))  # <- culprit
    return meter.avg


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(9, 2))
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    avg = train(model, opt, 6, rank)
    print(f"[{rank}] mean loss {avg:.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
