import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from ads.config import RunConfig
from ads.data import ClickLog
from ads.loaders import make_loader
from ads.model import CTRNet


def main():
    cfg = RunConfig.from_env()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(cfg.seed)
    loader = make_loader(ClickLog(cfg.rows), cfg)
    model = DDP(CTRNet())
    optim = torch.optim.Adagrad(model.parameters(), lr=cfg.lr)
    loss_fn = torch.nn.BCEWithLogitsLoss()

    for epoch in range(cfg.epochs):
        loader.sampler.set_epoch(epoch)
        total, rows = torch.zeros(1), 0
        for fields, dense, click in loader:
            loss = loss_fn(model(fields, dense), click)
            optim.zero_grad()
            loss.backward()
            optim.step()
            total += loss.detach() * len(click)
            rows += len(click)
        total /= rows
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch} logloss {total.item() / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
