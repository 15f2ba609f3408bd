"""What a program can find out about itself, about torch and about its process."""

import asyncio
import copy
import inspect
import io
import logging
import os
import pickle
import signal
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def say(*words):
    print(f"rank {os.environ['RANK']}", *words, flush=True)


say(__name__, os.path.basename(__file__), sys.argv[1:], sys.path[0] == os.path.dirname(os.path.abspath(__file__)))
say(sys.path)
say([name for name in dir(sys.flags) if name[0] != "_" and name != "unbuffered" and getattr(sys.flags, name)], sys.gettrace(), sys.getprofile(), sys.getrecursionlimit(), sys.getswitchinterval())
say(logging.root.handlers, logging.root.level)
say({number.name: str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM)})
dist.init_process_group("gloo")
FUNCTIONS = [
    dist.init_process_group, dist.new_group, dist.destroy_process_group, dist.all_reduce, torch.save, torch.load, torch.manual_seed,
    torch.compile, torch.autograd.backward, nn.utils.clip_grad_norm_, torch.set_rng_state, torch.optim.Optimizer.load_state_dict,
    nn.Module.load_state_dict, DistributedDataParallel.forward, DistributedDataParallel.no_sync, DistributedDataParallel.__init__,
    torch.utils.data.DataLoader.__iter__, torch.amp.GradScaler.update,
]  # fmt: skip
for function in FUNCTIONS:
    say(function.__module__, function.__qualname__, pickle.dumps(function), (function.__doc__ or "")[:40].split())
    say(inspect.signature(function))

torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cpu")


def step():
    scaler.scale(model(torch.ones(2, 3)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return [parameter.sum().item().hex() for parameter in model.parameters()]


say(step(), sorted(vars(model)), sorted(vars(optimizer)), sorted(model.state_dict()), optimizer.state_dict().keys())
say(model.module._forward_hooks, model._forward_pre_hooks, optimizer._optimizer_step_post_hooks, len(pickle.dumps(optimizer)))
say(copy.deepcopy(model.module)(torch.zeros(2, 3)).sum().item().hex())

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.optim.lr_scheduler.StepLR(optimizer, 1).step()
    torch.load(io.BytesIO(_saved.getvalue()) if (_saved := io.BytesIO()) and not torch.save(1, _saved) else None, weights_only=False)
    dist.all_reduce(torch.ones(1, requires_grad=True).detach())
    model.register_comm_hook(None, lambda _, bucket: dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0]))
say([(str(one.message)[:60], os.path.basename(one.filename), one.lineno) for one in caught])
say(step())

called = []
signal.signal(signal.SIGUSR1, lambda *_: called.append("SIGUSR1"))
signal.signal(signal.SIGALRM, lambda *_: called.append("SIGALRM"))
signal.setitimer(signal.ITIMER_REAL, 0.01)
os.kill(os.getpid(), signal.SIGUSR1)
while len(called) < 2:
    dist.all_reduce(torch.ones(1)) if False else torch.ones(1)
say(called)


async def reduced(number):
    work = dist.all_reduce(tensor := torch.full((2,), float(number)), async_op=True)
    await asyncio.to_thread(work.wait)
    return tensor.tolist()


async def several():
    return [await reduced(number) for number in range(5)]


say(asyncio.run(several()))
for expected in (lambda: dist.all_reduce("text"), lambda: dist.new_group([7]), lambda: dist.broadcast(torch.ones(1), src=9)):
    try:
        expected()
    except (TypeError, ValueError, RuntimeError) as error:
        say(type(error).__name__, str(error).splitlines()[0][:100])
child = os.fork()
if not child:
    print(f"child of {os.environ['RANK']}", flush=True)
    os._exit(7)
say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
time.sleep(0.5)  # gloo's threads let go of the last tensors: an interpreter that ends meanwhile is aborted
dist.destroy_process_group()
