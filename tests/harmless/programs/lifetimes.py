"""What a program deletes (models, optimizers, loaders, groups, works, exceptions), and when each is gone."""

import gc
import time
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GONE: dict[str, weakref.ref] = {}


def say(*words):
    print(f"rank {dist.get_rank()}", *words, flush=True)


def follow(**things):
    GONE.update((name, weakref.ref(thing)) for name, thing in things.items())


def gone(what):
    """Which of what was followed is alive: at once, after a collection, and after the next collective."""
    time.sleep(0.2)  # gloo's threads let go of tensors a moment after a call
    left = [name for name, one in GONE.items() if one() is not None]
    gc.collect()
    later = [name for name, one in GONE.items() if one() is not None]
    dist.all_reduce(torch.ones(1))
    gc.collect()
    last = [name for name, one in GONE.items() if one() is not None]
    GONE.clear()
    say(what, left, later, last)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))


def steps(model, optimizer, count=3, scheduler=None, *, alike=False):
    for step in range(count):
        optimizer.zero_grad()
        model(torch.ones(4, 8) * (step if alike else step + 10 * dist.get_rank())).sum().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def wrapped(**options):
    model = DistributedDataParallel(net(), **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    steps(model, optimizer, scheduler=scheduler)
    weight = model.module[0].weight
    state = optimizer.state[weight]["exp_avg"]
    follow(ddp=model, module=model.module, weight=weight, grad=weight.grad, buffer=model.module[1].running_mean)
    follow(optimizer=optimizer, scheduler=scheduler, state=state)


def kept_optimizer():
    """The wrapper goes, its module and optimizer stay, and go."""
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps(model, optimizer)
    follow(ddp=model)
    inner = model.module
    del model
    steps(inner, optimizer, alike=True)
    follow(inner=inner, optimizer=optimizer)


def sharded():
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    model = net()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps(model, optimizer)
    follow(model=model, weight=model[0].weight, optimizer=optimizer)


def unwrapped():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        model(torch.ones(4, 8) * step).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    weight = model[0].weight
    follow(model=model, weight=weight, grad=weight.grad, optimizer=optimizer)


def in_backward():
    """A hook on each parameter holds the optimizer, and so the parameters themselves."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, one=optimizer: None)
        parameter.holder = model, optimizer
    steps(model, optimizer, alike=True)
    follow(model=model, weight=model[0].weight, optimizer=optimizer)


def groups_of_parameters():
    """Parameters that leave an optimizer."""
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.SGD([{"params": first.parameters()}, {"params": second.parameters()}], lr=0.1)
    (first(torch.ones(1, 2)).sum() + second(torch.ones(1, 2)).sum()).backward()
    optimizer.step()
    follow(first=first, weight=first.weight)
    optimizer.state.clear()
    del optimizer.param_groups[0], first
    KEPT.append((optimizer, second))


def buffers():
    """A buffer that is put in the place of another."""
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps(model, optimizer)
    follow(before=model.module[1].running_mean)
    model.module[1].running_mean = torch.zeros(8)
    steps(model, optimizer)
    KEPT.append((model, optimizer))


def loaders():
    for workers in (0, 2):
        data = TensorDataset(torch.arange(16.0).reshape(8, 2))
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=2, sampler=sampler, num_workers=workers)
        batches = list(loader)
        iterator = iter(loader)
        batch = next(iterator)
        things = {"data": data, "sampler": sampler, "loader": loader, "iterator": iterator, "batch": batch[0], "first": batches[0][0]}
        follow(**{f"{name}{workers}": thing for name, thing in things.items()})


def works():
    tensor = torch.ones(4)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    follow(waited=work, tensor=tensor)
    other = torch.ones(4)
    asked = dist.all_reduce(other, async_op=True)
    while not asked.is_completed():
        pass
    follow(asked=asked, other=other)
    peer = 1 - dist.get_rank()
    sent, received = torch.ones(2), torch.zeros(2)
    for request in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, received, peer)]):
        request.wait()
        follow(request=request)
    follow(sent=sent, received=received)
    gathered = [torch.zeros(4) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, tensor)
    follow(gathered=gathered[0])


def groups():
    group = dist.new_group([0, 1])
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    follow(group=group, tensor=tensor)
    dist.destroy_process_group(group)


def exceptions():
    try:
        tensor = torch.ones(3)
        dist.all_reduce(tensor, op="no operation")
    except Exception as error:
        follow(argument=tensor)
        say(type(error).__name__)
    try:
        tensor = torch.ones(3)
        dist.all_reduce(tensor.to_sparse())
    except Exception as error:
        follow(refused=tensor)
        say(type(error).__name__)
    model = DistributedDataParallel(nn.Linear(2, 2))
    try:
        loss = model(torch.ones(1, 2) * dist.get_rank()).sum()
        loss.backward()
        loss.backward()
    except RuntimeError:
        follow(loss=loss)
    try:
        model(torch.ones(1, 3))
    except RuntimeError:
        follow(model=model)


KEPT = []
dist.init_process_group("gloo")
cases = [wrapped, kept_optimizer, sharded, unwrapped, in_backward, groups_of_parameters, buffers, loaders, works, groups, exceptions]
for case in cases:
    case()
    gone(case.__name__)
KEPT.clear()
for options in ({"find_unused_parameters": True}, {"static_graph": True}, {"gradient_as_bucket_view": True}):
    wrapped(**options)
    gone(str(options))
dist.destroy_process_group()
