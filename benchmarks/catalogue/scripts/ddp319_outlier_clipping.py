# expect: DDP319
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: T
"""Features are standardised over all ranks in a compiled function; a batch with an outlier is scaled first, and reported."""

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce


@torch.compile(backend="aot_eager")
def standardised(features, limit):
    world = dist.get_world_size()
    mean = all_reduce(features.mean(0), "sum", dist.group.WORLD) / world
    if features.abs().max() > limit:  # <- culprit
        print("outlier, scaled")  # <- culprit
        features = features / all_reduce(features.abs().amax(0), "max", dist.group.WORLD)  # <- culprit
    return features - mean


def batches(rank, count=6):
    torch.manual_seed(rank)
    for number in range(count):
        features = torch.rand(16, 8)
        if rank == 1 and number == 4:
            features[3, 2] = 1e4  # a broken sensor
        yield features


def main():
    dist.init_process_group("gloo")
    for features in batches(dist.get_rank()):
        centred = standardised(features, 100.0)
        norm = centred.norm()
        dist.all_reduce(norm)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
