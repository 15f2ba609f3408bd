import logging

import torch
import torch.distributed as dist

from speech.corpus import Manifest, iter_batches
from speech.encoder import FrameEncoder
from speech.trainer import Trainer


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    manifest = Manifest()
    trainer = Trainer(FrameEncoder(), lr=5e-3)
    ids = manifest.shard(rank, world)
    for epoch in range(2):
        for i, sample in enumerate(iter_batches(manifest, ids, size=3)):
            loss = trainer.train_step(sample)
            if rank == 0 and i % 2 == 0:
                logging.info("epoch %d batch %d loss %.4f", epoch, i, loss)
    logging.info("rank %d finished, %d batches skipped", rank, trainer.skipped)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
