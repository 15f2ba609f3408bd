# expect: DDP302
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: T
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Task:
    """Language-model task; a shard may be one batch short, then the first batch is replayed with weight zero."""

    def __init__(self, rank, world, updates):
        gen = torch.Generator().manual_seed(3)
        corpus = torch.randint(0, 20, (updates * world * 4 - 2, 6), generator=gen)
        shards = list(corpus.split(updates * 4))
        self.batches = [b for b in shards[rank].split(4) if len(b) == 4]
        while len(self.batches) < updates:
            self.batches.append(None)

    def __iter__(self):
        return iter(self.batches)


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 12)
        self.out = nn.Linear(12, 20)

    def forward(self, tokens):
        return self.out(self.emb(tokens))


class Criterion:
    def __call__(self, model, sample):
        logits = model(sample[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 20), sample[:, 1:].reshape(-1), reduction="sum")
        log = {"loss": loss.detach(), "ntokens": torch.tensor(float(sample[:, 1:].numel())),
               "nsentences": torch.tensor(float(len(sample)))}
        return loss, log


def can_sum_on_device(log):
    return all(torch.is_tensor(v) for v in log.values())  # <- culprit


def sync_logging(log):
    if can_sum_on_device(log):  # <- culprit
        flat = torch.stack([log[k] for k in sorted(log)])
        dist.all_reduce(flat)
        return dict(zip(sorted(log), flat.tolist()))
    outs = [None] * dist.get_world_size()
    dist.all_gather_object(outs, log)  # <- culprit
    return {k: sum(float(o[k]) for o in outs) for k in log}


class Trainer:
    def __init__(self):
        torch.manual_seed(1)
        self.model = DDP(LM())
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.criterion = Criterion()
        self.dummy = None

    def train_step(self, sample):
        ignore = sample is None
        sample = self.dummy if ignore else sample
        self.dummy = sample
        loss, log = self.criterion(self.model, sample)
        if ignore:
            loss = loss * 0.0
            log = {k: 0.0 for k in log}  # <- culprit
        self.opt.zero_grad()
        (loss / 20).backward()
        self.opt.step()
        return sync_logging(log)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trainer = Trainer()
    for update, sample in enumerate(Task(rank, dist.get_world_size(), 6)):
        agg = trainer.train_step(sample)
        if rank == 0:
            print(update, round(agg["loss"] / max(agg["ntokens"], 1), 4), flush=True)
    dist.destroy_process_group()
