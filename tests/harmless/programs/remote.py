"""RPC: calls, references, futures, exceptions, and gradients across ranks, beside collectives."""

import os
import time

import torch
import torch.distributed as dist
import torch.distributed.autograd as autograd
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer
from torch.distributed.rpc import RRef


class Store:
    def __init__(self, start):
        self.value = torch.full((2,), float(start))

    def add(self, number):
        self.value += number
        return self.value.clone()


def product(a, b):
    return a * b


def fails():
    raise KeyError("as asked")


rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{os.environ['RPC_PORT']}")
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size, rpc_backend_options=options)
dist.init_process_group("gloo")
other = f"worker{(rank + 1) % size}"


def say(*words):
    print(f"rank {rank}", *words, flush=True)


say(rpc.rpc_sync(other, product, args=(torch.ones(3) * rank, 2.5)).tolist())
futures = [rpc.rpc_async(other, product, args=(torch.ones(1) * number, rank)) for number in range(200)]
say(torch.cat(torch.futures.wait_all(futures)).sum().item())
dist.barrier()
store = rpc.remote(other, Store, args=(rank,))
for number in range(20):
    store.rpc_sync().add(number)
say(store.rpc_sync().add(0).tolist())
try:
    rpc.rpc_sync(other, fails)
except (KeyError, RuntimeError) as error:  # which of them, by the version of torch
    say(type(error).__name__, "KeyError('as asked')" in str(error).replace("\\", ""))
with autograd.context() as context:
    a, b = torch.ones(2, requires_grad=True), torch.full((2,), 3.0, requires_grad=True)
    references = [RRef(a), RRef(b)]
    loss = rpc.rpc_sync(other, product, args=(a, b)).sum()
    autograd.backward(context, [loss])
    DistributedOptimizer(torch.optim.SGD, references, lr=0.1).step(context)
    say([reference.to_here().tolist() for reference in references])
total = torch.full((2,), float(rank + 1))
dist.all_reduce(total)
say(total.tolist())
del store
rpc.shutdown()
time.sleep(0.5)  # gloo's threads let go of the last tensors: an interpreter that ends meanwhile is aborted
dist.destroy_process_group()
