import logging

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger(__name__)


class Trainer:
    def __init__(self, model, lr):
        self.model = DDP(model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.skipped = 0

    def _forward_backward(self, sample):
        logits = self.model(sample["feats"])
        loss = F.cross_entropy(logits.flatten(0, 1), sample["labels"].flatten())
        loss.backward()
        return loss.item()

    def train_step(self, sample):
        self.model.train()
        self.optimizer.zero_grad()
        stats = {"loss": 0.0, "ntokens": 0}
        try:
            stats["loss"] = self._forward_backward(sample)
            stats["ntokens"] = sample["ntokens"]
        except RuntimeError as e:
            if "out of memory" not in str(e):
                raise
            log.warning("ran out of memory, skipping batch: %s", e)
            self.optimizer.zero_grad()
            self.skipped += 1
        else:
            self.optimizer.step()
        return self._aggregate(stats)

    def _aggregate(self, stats):
        gathered = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, stats)
        tokens = sum(s["ntokens"] for s in gathered)
        return sum(s["loss"] * s["ntokens"] for s in gathered) / max(tokens, 1)
