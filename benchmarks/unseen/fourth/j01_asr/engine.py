import logging

import torch
import torch.distributed as dist

from prefetch import Prefetcher

log = logging.getLogger(__name__)


class Trainer:
    def __init__(self, model, optim, shard):
        self.model = model
        self.optim = optim
        self.shard = shard
        self.ctc = torch.nn.CTCLoss(zero_infinity=True)

    def step(self, frames, n_frames, labels, n_labels):
        loss = self.ctc(self.model(frames), labels, n_frames, n_labels)
        self.optim.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optim.step()
        return loss.item()

    def epoch(self, epoch):
        total, frames = 0.0, 0
        for batch in Prefetcher(self.shard.batches(epoch)):
            total += self.step(*batch)
            frames += int(batch[1].sum())
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, {"loss": total, "frames": frames})
        if dist.get_rank() == 0:
            log.info("epoch %d loss %.3f frames %d", epoch,
                     sum(p["loss"] for p in parts), sum(p["frames"] for p in parts))
