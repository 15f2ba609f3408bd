# expect: DDP109
# ranks: 2 4
# culprits: range(n)
# outcome: hang
# plain: T
import multiprocessing
import signal

import torch
import torch.distributed as dist


def limit():
    torch.set_num_threads(1)
    signal.alarm(90)


def percentile(values, q):
    return sorted(values)[int(q * (len(values) - 1))]


def summarise(job):
    """Runs in the pool: the percentiles of all processes' latencies."""
    name, values = job
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, values)  # <- culprit
    merged = [v for part in gathered for v in part]
    return name, percentile(merged, 0.5), percentile(merged, 0.99)


def measure(rounds):
    gen = torch.Generator().manual_seed(dist.get_rank())
    return {name: torch.rand(rounds, generator=gen).tolist() for name in ("forward", "backward")}


def main():
    dist.init_process_group("gloo")
    warm = torch.ones(4)
    dist.all_reduce(warm)
    measured = measure(50)
    context = multiprocessing.get_context("fork")
    with context.Pool(1, initializer=limit) as pool:
        for name, median, tail in pool.map(summarise, measured.items()):  # <- culprit
            print(name, median, tail)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
