import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from data import loaders
from fit import Fitter


def main():
    dist.init_process_group(backend="gloo")
    torch.manual_seed(5)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    fitter = Fitter(model, *loaders(dist.get_rank()))
    fitter.run(epochs=8)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
