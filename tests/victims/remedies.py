"""Mistakes, each also with the remedy that its finding gives.

Usage: remedies.py CASE [remedied]
"""

import os
import sys
import tempfile
import time
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset


DATA = TensorDataset(torch.arange(64.0).reshape(16, 4))


def wrapped(net=None, **options):
    torch.manual_seed(0)
    model = DistributedDataParallel(net or nn.Linear(4, 1), **options)
    return model, torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1)


def batch(rank, step=0):
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(10 * step + rank))


def train(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def total(value, op=dist.ReduceOp.SUM):
    tensor = torch.tensor(float(value))
    dist.all_reduce(tensor, op=op)
    return tensor.item()


def break_on_a_condition(rank, remedied):
    for step in range(6):
        enough = rank == 1 and step == 3
        if remedied:
            enough = total(enough, dist.ReduceOp.MAX) > 0
        if enough:
            break
        total(step)
    dist.barrier()


class Lines(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        return (torch.ones(4) * n * self.count for n in range(1, 1 + self.count))


def while_all_have_one(loader):
    """Its batches, as long as all ranks have one."""
    batches = iter(loader)
    while total((rows := next(batches, None)) is not None, dist.ReduceOp.MIN):
        yield rows


def iterable_data_of_other_length(rank, remedied):
    model, optimizer = wrapped()
    loader = DataLoader(Lines(6 - 2 * rank), batch_size=1)
    if remedied:
        loader = while_all_have_one(loader)
    for rows in loader:
        train(optimizer, model(rows).sum())


def part_of_other_length(rank, remedied):
    """The minimum is of the loader that the finding names."""
    model, optimizer = wrapped()
    loader = DataLoader(TensorDataset(DATA.tensors[0][: 12 - 4 * rank] + rank), batch_size=2)
    count = int(total(len(loader), dist.ReduceOp.MIN)) if remedied else len(loader)
    for (rows,) in islice(loader, count) if remedied else loader:
        train(optimizer, model(rows / 64).sum())


def other_batch_size(rank, remedied):
    model, optimizer = wrapped()
    sampler = DistributedSampler(DATA)
    loader = DataLoader(DATA, batch_size=2 if remedied else 2 + 2 * rank, sampler=sampler)
    epochs(model, optimizer, loader, sampler, 1)


def until_a_loss(rank, remedied):
    model, optimizer = wrapped()
    step, goal = 0, 4 - rank
    while (total(step < goal, dist.ReduceOp.MIN) > 0) if remedied else step < goal:
        train(optimizer, model(batch(rank, step)).sum())
        step += 1


def uneven_batches_with_join(rank, remedied):
    from contextlib import nullcontext

    from torch.distributed.algorithms.join import Join

    model, optimizer = wrapped()
    for epoch in range(2):
        with Join([model]) if remedied else nullcontext():
            for step in range(6 - 2 * rank):
                train(optimizer, model(batch(rank, 10 * epoch + step)).pow(2).sum())


def uneven_batches_with_adam(rank, remedied):
    """Join would make replicas differ in the second epoch."""
    model, _ = wrapped()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    count = 6 - 2 * rank
    if remedied:
        count = int(total(count, dist.ReduceOp.MIN))
    for epoch in range(2):
        for step in range(count):
            train(optimizer, model(batch(rank, 10 * epoch + step)).pow(2).sum())


def adam_after_join(rank, remedied):
    from torch.distributed.algorithms.join import Join

    model, _ = wrapped()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for epoch in range(3):
        with Join([model]):
            for step in range(6 - 2 * rank):
                train(optimizer, model(batch(rank, 10 * epoch + step)).pow(2).sum())
        if remedied:
            for state in optimizer.state.values():
                for value in state.values():
                    dist.broadcast(value, src=0)


def branch_of_one_rank(rank, remedied):
    for step in range(4):
        found = rank == 0 and step == 2
        if remedied:
            found = total(found, dist.ReduceOp.MAX) > 0
        if found:
            dist.barrier()
        dist.all_reduce(torch.ones(3))


def other_operations(rank, remedied):
    value = torch.ones(2)
    if rank or remedied:
        dist.all_reduce(value)
    else:
        dist.broadcast(value, 0)


def other_shapes(rank, remedied):
    rows = torch.ones(3 + rank, 2)
    if remedied:  # pad to the longest
        longest = int(total(len(rows), dist.ReduceOp.MAX))
        rows = torch.cat([rows, torch.zeros(longest - len(rows), 2)])
    dist.all_gather([torch.empty_like(rows) for _ in range(dist.get_world_size())], rows)


def other_dtypes(rank, remedied):
    value = torch.tensor([2]) if rank else torch.tensor([2.0])
    dist.all_reduce(value.float() if remedied else value)


def other_roots(rank, remedied):
    dist.broadcast(torch.ones(2), 0 if remedied else rank)


def groups_in_other_order(rank, remedied):
    first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
    for group in (first, second) if remedied or not rank else (second, first):
        dist.all_reduce(torch.ones(2), group=group)


def both_send_first(rank, remedied):
    mine, theirs = torch.ones(500_000), torch.empty(500_000)
    if remedied and rank:
        dist.recv(theirs, 1 - rank)
        dist.send(mine, 1 - rank)
    else:
        dist.send(mine, 1 - rank)
        dist.recv(theirs, 1 - rank)


def both_receive_first(rank, remedied):
    mine, theirs = torch.ones(4), torch.empty(4)
    if remedied:
        calls = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, theirs, 1 - rank)]
        for work in dist.batch_isend_irecv(calls):
            work.wait()
    else:
        dist.recv(theirs, 1 - rank)
        dist.send(mine, 1 - rank)


def one_evaluates_the_wrapped_model(rank, remedied):
    model, optimizer = wrapped(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
    for step in range(3):
        train(optimizer, model(batch(rank, step)).sum())
        if rank == 0 and step == 1:
            model.eval()
            with torch.no_grad():
                (model.module if remedied else model)(batch(rank))
            model.train()


def one_evaluates_a_sharded_model(rank, remedied):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    fully_shard(model[0])
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        train(optimizer, model(batch(rank, step)).sum())
        if step == 1 and (rank == 0 or remedied):
            with torch.no_grad():
                model(batch(rank))


def parameters_edited_on_one_rank(rank, remedied):
    model, optimizer = wrapped()
    for step in range(4):
        if step == 2 and rank == 1:
            with torch.no_grad():
                model.module.weight.mul_(2)
        if remedied:
            for p in model.parameters():
                dist.broadcast(p.data, src=0)
        train(optimizer, model(batch(rank, step)).sum())


def model_past_the_wrapper(rank, remedied):
    model, optimizer = wrapped()
    for step in range(3):
        train(optimizer, (model if remedied else model.module)(batch(rank, step)).sum())


def last_micro_step_not_synchronised(rank, remedied):
    model, optimizer = wrapped()
    for step in range(3):
        with model.no_sync():
            model(batch(rank, step)).sum().backward()
            if not remedied:
                model(batch(rank, step + 10)).sum().backward()
        if remedied:
            model(batch(rank, step + 10)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def frozen_when_wrapped(rank, remedied):
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    net[0].requires_grad_(False)
    model, optimizer = wrapped(net)
    for step in range(4):
        if step == 2:
            net[0].requires_grad_(True)
            if remedied:
                model = DistributedDataParallel(net)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        train(optimizer, model(batch(rank, step)).sum())


def epochs(model, optimizer, loader, sampler=None, count=2):
    for epoch in range(count):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for (rows,) in loader:
            train(optimizer, model(rows / 64).sum())


def no_sampler(rank, remedied):
    model, optimizer = wrapped()
    sampler = DistributedSampler(DATA, shuffle=False) if remedied else None
    epochs(model, optimizer, DataLoader(DATA, batch_size=2, sampler=sampler), sampler)


def samplers_of_one_rank(rank, remedied):
    model, optimizer = wrapped()
    sampler = DistributedSampler(DATA) if remedied else DistributedSampler(DATA, rank=0)
    epochs(model, optimizer, DataLoader(DATA, batch_size=2, sampler=sampler), sampler)


def epoch_not_set(rank, remedied):
    model, optimizer = wrapped()
    sampler = DistributedSampler(DATA)
    epochs(model, optimizer, DataLoader(DATA, batch_size=2, sampler=sampler), sampler if remedied else None, 3)


def tensor_parallel_by_rank(rank, remedied):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    parallelize_module(model, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    replicas, own = (1, 0) if remedied else (2, rank)
    sampler = DistributedSampler(DATA, num_replicas=replicas, rank=own)
    epochs(model, optimizer, DataLoader(DATA, batch_size=2, sampler=sampler), sampler)


def loaded_on_one_rank(rank, remedied):
    model, optimizer = wrapped()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        torch.manual_seed(7)
        torch.save(nn.Linear(4, 1).state_dict(), path)
        if rank == 0 or remedied:
            model.module.load_state_dict(torch.load(path))
        for step in range(3):
            train(optimizer, model(batch(rank, step)).sum())


def unused_parameters(rank, remedied):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 1), nn.Linear(4, 1)

        def forward(self, rows):
            return self.used(rows)

    model, optimizer = wrapped(Net(), find_unused_parameters=remedied)
    for step in range(3):
        train(optimizer, model(batch(rank, step)).sum())


def other_model(rank, remedied):
    classes = 3 + rank
    if remedied:
        classes = int(total(classes, dist.ReduceOp.MAX))
    model, optimizer = wrapped(nn.Linear(4, classes))
    train(optimizer, model(batch(rank)).sum())


def other_learning_rate(rank, remedied):
    model, _ = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 if remedied else 0.1 * (1 + rank))
    for step in range(3):
        train(optimizer, model(batch(rank, step)).sum())


def converted_after_wrapping(rank, remedied):
    """SyncBatchNorm needs a GPU."""
    model, optimizer = wrapped(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
    if not remedied:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    train(optimizer, model(batch(rank)).sum())


def hook_of_one_rank(rank, remedied):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    model, optimizer = wrapped()
    if rank == 1 or remedied:
        model.register_comm_hook(None, fp16_compress_hook)
    train(optimizer, model(batch(rank)).sum())


def work_discarded(rank, remedied):
    if rank == 0:
        work = dist.isend(torch.ones(4), 1) if remedied else None
        if work is not None:
            work.wait()
        else:
            dist.isend(torch.ones(4), 1)
    else:
        time.sleep(0.5)
        dist.recv(torch.empty(4), 0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank(), "remedied" in sys.argv)
    dist.destroy_process_group()
