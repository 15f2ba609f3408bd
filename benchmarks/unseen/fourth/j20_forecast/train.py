import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from config import Settings
from engine import Engine
from model import Forecaster
from series import ShardedWindows


def main():
    dist.init_process_group("gloo")
    cfg = Settings()
    torch.manual_seed(cfg.seed)
    windows = ShardedWindows(cfg, dist.get_rank(), dist.get_world_size())
    model = DDP(Forecaster(cfg.history, cfg.horizon))
    engine = Engine(model, torch.optim.AdamW(model.parameters(), lr=cfg.lr), cfg)
    for epoch in range(cfg.epochs):
        stats = engine.run_epoch(windows.loader(epoch))
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, stats)
        if dist.get_rank() == 0:
            n = sum(s["windows"] for s in everyone)
            print(f"epoch {epoch} mse {sum(s['sse'] for s in everyone) / n:.4f} over {n}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
