# expect: DDP102
# ranks: 2 4
# culprits: range(1, n, 2)
# outcome: hang
# plain: T
"""Fine-tuning on stereo recordings; a shard is one channel of one session."""
import logging
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
log = logging.getLogger("tune")
MIN_FRAMES = 200

# session, channel, frames
SHARDS = [(s, c, 400 + 16 * s if c == "L" else 120 + s) for s in range(8) for c in "LR"]


class Worker:
    def __init__(self):
        self.rank = int(os.environ.get("RANK", 0))
        self.world = int(os.environ.get("WORLD_SIZE", 1))
        self.shards = []

    def collect(self):
        for session, channel, frames in SHARDS[self.rank::self.world]:
            if frames < MIN_FRAMES:
                log.info("rank %d: session %d%s has %d frames only", self.rank, session, channel, frames)
                continue
            self.shards.append((session, channel, frames))
        return bool(self.shards)

    def features(self):
        for session, channel, frames in self.shards[:2]:
            g = torch.Generator().manual_seed(session)
            yield torch.randn(frames, 8, generator=g)

    def connect(self):
        dist.init_process_group("gloo")

    def train(self):
        torch.manual_seed(0)
        model = DDP(nn.Linear(8, 8))
        opt = torch.optim.SGD(model.parameters(), lr=0.05)
        for x in self.features():
            opt.zero_grad()
            loss = (model(x) - x).square().mean()
            loss.backward()
            opt.step()
            log.info("rank %d: %.4f", self.rank, loss.item())


def run():
    w = Worker()
    if not w.collect():  # <- culprit
        log.info("rank %d: nothing to do", w.rank)
        return 0  # <- culprit
    w.connect()
    w.train()
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(run())  # <- culprit
