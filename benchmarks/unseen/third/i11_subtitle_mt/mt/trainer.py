import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from .data import PAD


class TooLong(RuntimeError):
    pass


class Trainer:
    MAX_WIDTH = 12      # memory of the small cards

    def __init__(self, model, dummy_batch, lr):
        self.model = DDP(model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.dummy_batch = dummy_batch
        self.skipped = 0

    def _prepare(self, sample):
        if sample is None:
            return self.dummy_batch, True
        if sample["src"].shape[1] > self.MAX_WIDTH:
            raise TooLong(f"{sample['src'].shape[1]} tokens")
        return sample, False

    def _loss(self, sample, ignore_grad):
        logits = self.model(sample["src"])
        loss = F.cross_entropy(logits.flatten(0, 1), sample["tgt"].flatten(), ignore_index=PAD, reduction="sum")
        return loss * 0 if ignore_grad else loss

    def train_step(self, sample):
        try:
            batch, ignore_grad = self._prepare(sample)
        except TooLong:
            self.skipped += 1
            batch, ignore_grad = self.dummy_batch, True
        self.optimizer.zero_grad()
        loss = self._loss(batch, ignore_grad)
        loss.backward()
        totals = torch.tensor([0.0 if ignore_grad else batch["ntokens"], loss.item()])
        dist.all_reduce(totals)
        if totals[0] == 0:
            return None
        # DDP averaged sums over the ranks: turn that into a mean per real token
        for p in self.model.parameters():
            p.grad.mul_(dist.get_world_size() / totals[0])
        self.optimizer.step()
        return (totals[1] / totals[0]).item()
