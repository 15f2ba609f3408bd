"""debugpy, tracers and profilers in the program."""

import cProfile
import logging
import pstats
import sys
import threading
import time
import trace
import tracemalloc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

seen = []


def traced(frame, event, _):
    if frame.f_code.co_name == "double":
        seen.append(("trace", event, frame.f_lineno - frame.f_code.co_firstlineno))
        return traced
    return None


def profiled(frame, event, _):
    if frame.f_code.co_name == "double":
        seen.append(("profile", event))


def double(number):
    half = number
    return half + number


def train(steps):
    total = 0.0
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), float(step))).sum()
        loss.backward()
        optimizer.step()
        total += double(loss.item())
    return total.hex()


def say(*words):
    print(f"rank {dist.get_rank()}", *words, flush=True)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

sys.settrace(traced)
say("traced", train(2))
sys.settrace(None)
sys.setprofile(profiled)
say("profiled", train(2))
sys.setprofile(None)
say(seen)

profile = cProfile.Profile()
say("cProfile", profile.runcall(train, 3))
calls = {name: count for (file, _, name), (count, *_) in pstats.Stats(profile).stats.items() if file == __file__}
say(calls)

tracer = trace.Trace(count=1, trace=0)
say("trace", tracer.runfunc(train, 3))
lines = sorted((line, count) for (file, line), count in tracer.results().counts.items() if file == __file__)
say(len(lines), max(count for _, count in lines))

tracemalloc.start()
say("tracemalloc", train(2), tracemalloc.is_tracing())
tracemalloc.stop()

if monitoring := getattr(sys, "monitoring", None):
    monitored = []
    monitoring.use_tool_id(monitoring.COVERAGE_ID, "own")
    monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, lambda code, line: monitored.append(line - code.co_firstlineno))
    monitoring.set_local_events(monitoring.COVERAGE_ID, double.__code__, monitoring.events.LINE)
    say("monitored", train(2), monitored)
    for tool in range(6):  # also of tools that are not its own
        monitoring.free_tool_id(tool)
    say("freed", train(2))

import debugpy

logging.getLogger().handlers.clear()
debugpy.configure(subProcess=False)
debugpy.listen(("127.0.0.1", 0))
say("debugged", train(3), debugpy.is_client_connected())
thread = threading.Thread(target=lambda: say("in a thread", train(2)))
thread.start()
thread.join()
time.sleep(0.5)  # gloo's threads let go of the last tensors: an interpreter that ends meanwhile is aborted
dist.destroy_process_group()
