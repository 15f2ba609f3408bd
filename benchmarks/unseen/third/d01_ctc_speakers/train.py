"""Frame classifier for phones, trained clean speakers first and all speakers afterwards."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from asr.callbacks import EarlyStopping, History
from asr.data import N_MELS, N_PHONES, SpeakerPool
from asr.trainer import Trainer


def build_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(N_MELS, 32), nn.ReLU(), nn.Linear(32, N_PHONES))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))

    train_speakers = list(range(24))
    dev_speakers = [24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35]
    pool = SpeakerPool(36, frames=10, noisy=[d for i, d in enumerate(dev_speakers) if i % world == world // 2])

    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    history = History()
    trainer = Trainer(model, optimizer, pool, rank, world,
                      callbacks=[history, EarlyStopping("val_loss", patience=3)])
    stages = [("clean", train_speakers[:12], 6), ("all", train_speakers, 6)]
    stage, epoch = trainer.fit(stages, dev_speakers)

    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    peak = weights.abs().max()
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(f"finished in stage {stage}, epoch {epoch}, largest weight {peak.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
