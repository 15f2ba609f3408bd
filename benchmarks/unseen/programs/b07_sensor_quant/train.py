import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from quant.calibrate import calibrate
from quant.observer import QuantNet
from utils.cfg import Config


def batches(seed, n):
    gen = torch.Generator().manual_seed(seed)
    for _ in range(n):
        x = torch.randn(16, 9, generator=gen)
        yield x, (x[:, 0] * x[:, 1] > 0).long()


def main(cfg: Config):
    dist.init_process_group("gloo")
    torch.manual_seed(9)
    model = DistributedDataParallel(QuantNet(), **dict(cfg.ddp))
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9)
    for epoch in range(cfg.epochs):
        calibrate(model, itertools.islice(batches(epoch, 100), cfg.calib_batches), cfg)
        for x, y in batches(dist.get_rank() + 10 * epoch, cfg.steps):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        value = loss.detach().clone()
        dist.all_reduce(value)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {value.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
