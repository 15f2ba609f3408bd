# expect: DDP306
# ranks: 2 4
# culprits: any
# outcome: hang
# plain: H
"""Statistics over two groups of all processes, whichever result is ready first."""

import torch
import torch.distributed as dist


def fast_statistic(x):
    return x.mean(0)


def slow_statistic(x):
    return x.median(0).values


class Monitor:
    def __init__(self):
        everybody = list(range(dist.get_world_size()))
        self.groups = {"mean": dist.new_group(everybody), "median": dist.new_group(everybody)}

    def collect(self, ready):
        """`ready` holds names and values in the order in which they became ready."""
        out = {}
        for name, value in ready:
            dist.all_reduce(value, group=self.groups[name])
            out[name] = value / dist.get_world_size()
        return out


def compute(x, cached):
    # with a warm cache the median comes at once
    jobs = [("mean", fast_statistic(x)), ("median", slow_statistic(x))]
    return jobs[::-1] if cached else jobs


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    monitor = Monitor()
    for step in range(5):
        cached = rank % 2 == 1 and step >= 2
        out = monitor.collect(compute(torch.rand(20, 4), cached))
    print(rank, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
