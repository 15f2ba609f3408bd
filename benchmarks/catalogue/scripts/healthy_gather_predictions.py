# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
# Evaluation of a retrieval model on shards of different length: pad and cut for tensors, objects for the rest.
import time

import torch
import torch.distributed as dist
import torch.nn as nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 1)

    def forward(self, x):
        return self.lin(x).squeeze(-1)


def share_config():
    """The main process reads the configuration, the others have placeholders."""
    if dist.get_rank() == 0:
        box = [{"batch": 4, "cut": 0.1}, [3, 1, 4]]
    else:
        box = [None, None]
    dist.broadcast_object_list(box, src=0)
    return box


def gather_uneven(t):
    world = dist.get_world_size()
    size = torch.tensor([len(t)])
    sizes = [torch.zeros_like(size) for _ in range(world)]
    dist.all_gather(sizes, size)
    longest = int(max(sizes))
    padded = torch.zeros(longest, dtype=t.dtype)
    padded[:len(t)] = t
    parts = [torch.empty(longest, dtype=t.dtype) for _ in range(world)]
    dist.all_gather(parts, padded)
    return torch.cat([p[:int(s)] for p, s in zip(parts, sizes)])


def gather_names(names):
    if dist.get_rank() == 0:
        table = [None] * dist.get_world_size()
        dist.gather_object(names, table, dst=0)
        return [n for part in table for n in part]
    dist.gather_object(names, dst=0)
    return None


@torch.no_grad()
def predict(model, queries, batch):
    model.eval()
    parts = [model(q) for q in queries.split(batch)]
    return torch.cat(parts) if parts else torch.empty(0)


def local_queries(rank, world):
    """The catalogue has fewer pages at the end; the last rank may even have none."""
    gen = torch.Generator().manual_seed(rank)
    return torch.randn(7 * (world - 1 - rank), 4, generator=gen)


def hard_cases(scores, cut):
    picked = {i: float(s) for i, s in enumerate(scores) if abs(float(s)) < cut}
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, picked)
    return sum(len(p) for p in everyone)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg, digits = share_config()
    torch.manual_seed(sum(digits))
    model = Scorer()
    queries = local_queries(rank, world)
    scores = predict(model, queries, cfg["batch"]) if len(queries) else torch.empty(0)
    everything = gather_uneven(scores)
    hard = hard_cases(scores, cfg["cut"])
    names = gather_names([f"r{rank}q{i}" for i in range(len(scores))])
    if rank == 0:
        assert len(names) == len(everything)
        print(f"{len(names)} queries, {hard} hard, best {names[int(everything.argmax())]}", flush=True)
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
