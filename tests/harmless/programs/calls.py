"""10,000 calls in flight, and 100,000 small ones."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
tensors = [torch.full((1,), float(rank + number)) for number in range(10_000)]
works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
for work in reversed(works):
    work.wait()
print(f"rank {rank}: {torch.cat(tensors).double().sum().item()} {all(work.is_completed() for work in works)}", flush=True)
del works, tensors

alone = [dist.new_group([member]) for member in range(2)][rank]
value = torch.ones(1)
for number in range(95_000):
    dist.all_reduce(value, group=alone)
for number in range(5_000):
    dist.all_reduce(value)
    value /= 2
print(f"rank {rank}: {value.item()}", flush=True)
time.sleep(0.5)  # gloo's threads let go of the last tensors: an interpreter that ends meanwhile is aborted
dist.destroy_process_group()
