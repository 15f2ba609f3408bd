# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: evaluation with results of different length per process: objects are gathered, tensors are padded first.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def gather_padded(t):
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([t.shape[0]]))
    longest = max(int(s) for s in sizes)
    padded = torch.zeros(longest, *t.shape[1:])
    padded[:t.shape[0]] = t
    out = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(out, padded)
    return torch.cat([o[:int(s)] for o, s in zip(out, sizes)])


def gather_objects(obj):
    box = [None] * dist.get_world_size()
    dist.all_gather_object(box, obj)
    return [x for part in box for x in part]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Linear(5, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    gen = torch.Generator().manual_seed(rank)
    for _ in range(4):
        x = torch.randn(8, 5, generator=gen)
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
        opt.step()
    model.eval()
    x = torch.randn(6 + 3 * rank, 5, generator=gen)
    with torch.no_grad():
        probs = model.module(x).softmax(1)
    names = gather_objects([f"r{rank}_{i}" for i in range(len(x))])
    table = gather_padded(probs)
    report = [None]
    if rank == 0:
        report = [dict(zip(names, table.argmax(1).tolist()))]
        print(f"{len(report[0])} predictions, mean confidence {table.max(1).values.mean():.3f}")
    dist.broadcast_object_list(report, src=0)
    assert len(report[0]) == len(names)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
