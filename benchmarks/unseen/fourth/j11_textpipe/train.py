import torch
import torch.distributed as dist

from corpus import batches
from schedule import Config, Pipeline
from stages import build_stage


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2 + rank)
    cfg = Config(batch=32, micro=8, dim=24, length=10)
    stage = build_stage(rank, world, cfg.dim)
    optim = torch.optim.Adam(stage.parameters(), lr=2e-3)
    pipe = Pipeline(stage, cfg, rank, world)

    for epoch in range(3):
        for tokens, target in batches(112, cfg.batch, cfg.length, seed=epoch):
            optim.zero_grad()
            loss = pipe.step(tokens, target)
            optim.step()
        if pipe.last:
            print(f"epoch {epoch} loss {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
