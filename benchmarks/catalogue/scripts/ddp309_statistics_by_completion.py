# expect: DDP309
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
# Re-enacts: stable-baselines / torchrl style: running statistics of observations and returns merged over workers, in order of completion
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch
import torch.distributed as dist


class RunningMean:
    def __init__(self, size):
        self.mean = torch.zeros(size)
        self.count = 0

    def update(self, batch):
        total = self.count + len(batch)
        self.mean = (self.mean * self.count + batch.sum(0)) / total
        self.count = total


class VecNormalize:
    def __init__(self, dim=3):
        self.obs_rms = RunningMean(dim)
        self.ret_rms = RunningMean(dim)  # a return per reward channel

    def merge_observations(self):
        dist.all_reduce(self.obs_rms.mean)  # <- culprit
        self.obs_rms.mean /= dist.get_world_size()

    def merge_returns(self):
        dist.all_reduce(self.ret_rms.mean)  # <- culprit
        self.ret_rms.mean /= dist.get_world_size()


class Env:
    def __init__(self, rank, world):
        self.gen = torch.Generator().manual_seed(rank)
        self.camera_delay = 0.6 if rank == world - 1 else 0.0  # one machine has the old camera

    def observations(self):
        time.sleep(self.camera_delay)
        return torch.randn(16, 3, generator=self.gen)

    def returns(self):
        time.sleep(0.3)
        return 100 + torch.randn(16, 3, generator=self.gen)


def rollout(env, norm, pool):
    jobs = {pool.submit(env.observations): "obs", pool.submit(env.returns): "ret"}
    for job in as_completed(jobs):  # <- culprit
        if jobs[job] == "obs":
            norm.obs_rms.update(job.result())
            norm.merge_observations()  # <- culprit
        else:
            norm.ret_rms.update(job.result())
            norm.merge_returns()  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    env, norm = Env(rank, world), VecNormalize()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            rollout(env, norm, pool)
    print(f"[{rank}] obs {norm.obs_rms.mean.mean():.2f} return {norm.ret_rms.mean.mean():.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
