# expect: DDP110
# also: DDP104 DDP101
# ranks: 2 4
# culprits: range(n)
# outcome: hang
# plain: T
import os

import torch
import torch.distributed as dist

JOB = """
job: pagerank
head: login-1.cluster.invalid
port: 29500
"""


def read_job(text):
    return dict(line.split(": ", 1) for line in text.strip().splitlines())


def start(job):
    os.environ["MASTER_ADDR"] = job["head"]  # <- culprit
    dist.init_process_group("gloo")  # <- culprit


def pagerank(links, rounds=5, damping=0.85):
    rank, size = dist.get_rank(), dist.get_world_size()
    score = torch.full((len(links),), 1 / len(links))
    for _ in range(rounds):
        part = links[:, rank::size] @ score[rank::size]
        dist.all_reduce(part)
        score = (1 - damping) / len(links) + damping * part / part.sum()
    return score


start(read_job(JOB))
torch.manual_seed(0)
print(pagerank(torch.rand(12, 12)).topk(3).indices.tolist())
dist.destroy_process_group()
