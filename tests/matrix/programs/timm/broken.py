# command: torchrun --standalone --nproc_per_node=2 broken.py
# plain: hang
# outcome: hang
# expect: DDP301
# sides: 0 | 1
# remedy: timm.utils.distribute_bn()
"""As timm's train.py: one model of timm's, reduced losses, but rank 1 has fewer batches than rank 0."""

import timm
import torch
from timm import utils
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch.nn.parallel import DistributedDataParallel as NativeDDP


def loader_of(rank, batches):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(batches):
        yield torch.randn(4, 3, 32, 32, generator=generator), torch.randint(0, 10, (4,), generator=generator)


class Args:
    device = "cpu"
    dist_backend = "gloo"
    dist_url = "env://"


def main():
    args = Args()
    device = utils.init_distributed_device(args)
    utils.random_seed(1, 0)
    model = timm.create_model("resnet10t", num_classes=10).to(device)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.05)
    model = NativeDDP(model)
    scheduler = CosineLRScheduler(optimizer, t_initial=2)
    for epoch in range(2):
        losses = utils.AverageMeter()
        batches = 4 - args.rank  # the shards of the data have different lengths
        for input, target in loader_of(args.rank, batches):
            loss = torch.nn.functional.cross_entropy(model(input), target)  # <- culprit
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.update(utils.reduce_tensor(loss.data, args.world_size).item(), input.size(0))
        utils.distribute_bn(model, args.world_size, True)
        scheduler.step(epoch + 1)
        if utils.is_primary(args):
            print(f"epoch {epoch}: loss {losses.avg:.6f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
