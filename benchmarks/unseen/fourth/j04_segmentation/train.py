import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from engine import fit
from tiles import REGIONS, TileSource
from unet import MiniUNet


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(21)
    rank = dist.get_rank()
    source = TileSource(REGIONS[rank % len(REGIONS)], seed=50 + rank)
    model = DDP(MiniUNet(n_classes=8))
    optim = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    fit(model, optim, source, steps=30, report_every=3)
    if rank == 0:
        print("finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
