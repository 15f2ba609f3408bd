# expect: DDP309
# ranks: 2
# culprits: [n-1]
# outcome: any
# plain: S
# Re-enacts: issue "sync_dist is wrong when keys come in another order": two scalars are averaged in exchanged order.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def reduce_mean(x):
    x = x.detach().clone().reshape(1)
    dist.all_reduce(x)
    return x / dist.get_world_size()


class SemiSupervised:
    def __init__(self, rank, world):
        self.rank = rank
        torch.manual_seed(0)
        self.net = DDP(nn.Linear(6, 3))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        # the labelled images sit on the first machines, the last one has unlabelled ones
        self.labelled = rank != world - 1
        self.gen = torch.Generator().manual_seed(rank)

    def batch(self):
        x = torch.randn(8, 6, generator=self.gen)
        y = torch.randint(0, 3, (8,), generator=self.gen)
        return x, y if self.labelled else None

    def step(self):
        x, y = self.batch()
        logits = self.net(x)
        target = y if y is not None else logits.detach().argmax(1)
        loss = nn.functional.cross_entropy(logits, target)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        confidence = logits.softmax(1).max(1).values.mean()
        if y is not None:  # <- culprit
            log_loss = reduce_mean(loss)  # <- culprit
            log_conf = reduce_mean(confidence)  # <- culprit
        else:
            log_conf = reduce_mean(confidence)  # <- culprit
            log_loss = reduce_mean(loss)  # <- culprit
        return {"loss": log_loss.item(), "confidence": log_conf.item()}


def main():
    dist.init_process_group("gloo")
    job = SemiSupervised(dist.get_rank(), dist.get_world_size())
    for i in range(5):
        logs = job.step()  # <- culprit
        if job.rank == 0:
            print(i, {k: round(v, 4) for k, v in logs.items()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
