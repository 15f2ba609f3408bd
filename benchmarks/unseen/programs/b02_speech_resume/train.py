import os
import shutil

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from checkpoint import Checkpointer
from model import TinyConformer, fake_utterances

CONFIG = {"name": "conformer-small", "steps": 6, "lr": 5e-3, "save_every": 3, "lives": 2}


def build(cfg):
    torch.manual_seed(1234)
    model = DDP(TinyConformer())
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    return model, optimizer, Checkpointer(cfg["name"], model, optimizer)


def run_life(cfg, life):
    """One allocation on the cluster; the job is requeued until all lives are used."""
    model, optimizer, ckpt = build(cfg)
    ckpt.maybe_resume()
    total = 0.0
    for step, (feats, target) in enumerate(fake_utterances(dist.get_rank() + 100 * life, cfg["steps"]), 1):
        loss = F.cross_entropy(model(feats), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % cfg["save_every"] == 0:
            ckpt.save(life * cfg["steps"] + step)
    mean = torch.tensor(total / cfg["steps"])
    dist.all_reduce(mean)
    if int(os.environ["RANK"]) == 0:
        print(f"allocation {life}: loss {mean.item() / dist.get_world_size():.4f}")
    return ckpt


def main():
    dist.init_process_group("gloo")
    for life in range(CONFIG["lives"]):
        ckpt = run_life(CONFIG, life)
    dist.barrier()
    shutil.rmtree(ckpt.dir, ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
