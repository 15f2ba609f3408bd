"""What ddpnb costs: per collective on a fake backend and on gloo, per step of plain collectives, and per DDP step.

On gloo, two ranks, each way in fresh processes, all ways in turn: plain (flight recorder off), with the flight recorder of
torch, with the recorder of ddpnb alone (no fence, no replica watch), with both, under ``ddpnb run``, whose watchdog runs on the same
cores, and with ``TORCH_DISTRIBUTED_DEBUG=DETAIL``, as far as torch survives that.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

import torch

from benchmarks import ranks
from benchmarks.rows import Goal, Row
from benchmarks.show import alone
from ddpnb.recorder.collectives.group_hooks import GroupHooks

PROCESSES, ROUNDS, CALLS = 5, 7, 4000
TURNS, WARM, BLOCKS, EACH = 5, 200, 12, 20  # steps of tens of milliseconds hide a cost of one percent

CALL = """
import os, statistics, sys, tempfile, time
import torch, torch.distributed as dist
from torch._C._distributed_c10d import FakeWork
from torch.testing._internal.distributed.fake_pg import FakeStore
kind, rounds, calls = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
if kind == "bare crossing":
    after = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
    op = torch.ops.c10d.allreduce_.default
    library = torch.library.Library("c10d", "IMPL")
    library.impl("allreduce_", lambda keys, *args: op.redispatch(keys & after, *args), "BackendSelect", with_keyset=True)
elif kind != "plain":
    os.environ["DDPNB_DOOR"] = kind
    from ddpnb.recorder.files.blackbox import BlackBox
    from ddpnb.recorder.collectives.door import Door
    from ddpnb.recorder.collectives.waits import watched
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    door = Door(BlackBox(os.path.join(folder, "rank0.box"), 0), folder)
    door.open()
    FakeWork.wait = watched(FakeWork.wait, door)
x = torch.ones(4)
times = []
for _ in range(rounds + 1):
    began = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(x)
    times.append((time.perf_counter() - began) / calls * 1e6)
print(statistics.median(times[1:]))
"""


def calls(quick: bool = False) -> Iterator[Row]:
    """a collective on a fake backend"""
    kinds = ("plain", "bare crossing", "kernels", *(["hooks"] if GroupHooks.exist() else []))
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    rounds, each = (2, 500) if quick else (ROUNDS, CALLS)
    for _ in range(1 if quick else PROCESSES):  # in turn, so that a drift of the machine meets all alike
        for kind in kinds:
            command = [sys.executable, "-c", CALL, kind, str(rounds), str(each)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
            times[kind].append(float(done.stdout.split()[-1]) / 1e6)
    plain = tuple(times["plain"])
    crossing = (statistics.median(times["bare crossing"]) - statistics.median(plain)) * 1e6
    for kind in kinds[2:]:
        yield Row(
            "door",
            f"all_reduce of 4 floats, fake backend: record and fence, on {kind}",
            tuple(times[kind]),
            peer="plain",
            theirs=plain,
            goal=Goal(5e-6 if kind == "hooks" else 10e-6, "added"),
            note=f"torch {torch.__version__}; a kernel of Python that only passes on adds {crossing:.1f} us",
        )


STEP = """
import os, statistics, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
kind, warm, count, each = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(1)
if kind == "recording":
    from ddpnb.recording.blackbox import RUN_ACTIVE
    from ddpnb.recorder.recorder import Recorder
    recorder = Recorder(os.environ["BENCH_FOLDER"], int(os.environ["RANK"]))
    recorder.replicas.remove()
    recorder.begin_run(1, "off")
    recorder.box.set_run(1, RUN_ACTIVE)
dist.init_process_group("gloo")
torch.manual_seed(0)
x, times = torch.ones(4), []
for turn in range(4 * warm + 2 * each * count):
    began = time.perf_counter()
    dist.all_reduce(x)
    times.append(time.perf_counter() - began)
if dist.get_rank() == 0:
    print("RESULT collective", statistics.median(times[4 * warm:]), flush=True)

def timed(step):
    # The quickest of some blocks of steps, the mean of the first ones, and the CPU time.
    def block(steps):
        dist.barrier()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        return (time.perf_counter() - began) / steps
    first = block(min(warm, 100))
    block(max(warm - 100, 1))
    used = time.process_time()
    quickest = min(block(each) for _ in range(count))
    return quickest, first, (time.process_time() - used) / (count * each)

model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.randn(64, 512)
def by_hand():
    model(data).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2
    optimizer.step(); optimizer.zero_grad()
values = timed(by_hand)
if dist.get_rank() == 0:
    print("RESULT by_hand", *values, flush=True)
ddp = DDP(model)
def by_ddp():
    ddp(data).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
values = timed(by_ddp)
if dist.get_rank() == 0:
    print("RESULT ddp", *values, flush=True)
dist.barrier()
dist.destroy_process_group()
"""
#: way -> what it is called in the table
WAYS = {
    "plain": "plain",
    "flight recorder": "flight recorder on (2,000 entries)",
    "recording": "recording only",
    "ddpnb": "fence and replica watch",
    "ddpnb run": "ddpnb run, watchdog included",
    "detail": "DETAIL",
}
WHAT = {"collective": "all_reduce of 4 floats", "by_hand": "step with 16 plain all_reduces", "ddp": "DDP step"}


def _once(way: str, path: str, *sizes: int) -> tuple[dict[str, list[float]], str]:
    """The figures of rank 0, and how it ended if not well."""
    from ddpnb.ranks.jobs.injection import injected

    arguments = [path, way, *map(str, sizes)]
    base = {
        **ranks.ENVIRONMENT,
        "OMP_NUM_THREADS": "1",
        "TORCH_FR_BUFFER_SIZE": "2000" if way == "flight recorder" else "0",
    }
    with ranks.memory_folder() as folder:
        if way == "ddpnb run":
            command = [sys.executable, "-m", "ddpnb", "run", "-n", "2", *arguments]
            done = subprocess.run(command, env=base, capture_output=True, text=True, timeout=300, check=False)
            output, statuses = done.stdout + done.stderr, [done.returncode]
        else:
            environment = base | {"BENCH_FOLDER": folder}
            if way == "ddpnb":
                environment = injected(environment, folder, "warn")
            if way == "detail":
                environment["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
            output, statuses = ranks.interpreters(2, [sys.executable, *arguments], environment)
    lines = [line.partition("RESULT ")[2].split() for line in output.splitlines() if "RESULT " in line]
    found = {name: [float(value) for value in values] for name, *values in lines}
    return found, "" if not any(statuses) else f"{_ending(statuses)}{'' if found else ': ' + output[-200:]}"


def _ending(statuses: list[int]) -> str:
    names = {-11: "segmentation fault", -6: "abort", -9: "killed"}
    return ", ".join(sorted({names.get(status, f"exit status {status}") for status in statuses if status}))


def steps(quick: bool = False) -> Iterator[Row]:
    """a collective and a step on gloo, 2 ranks"""
    sizes = (3, 2, 3) if quick else (WARM, BLOCKS, EACH)
    results: dict[tuple[str, str], list[list[float]]] = {}
    ends: dict[str, str] = {}
    with ranks.script(STEP) as path:
        for _ in range(1 if quick else TURNS):
            for way in WAYS:
                found, ended = _once(way, path, *sizes)
                ends[way] = ended or ends.get(way, "")
                for name, values in found.items():
                    results.setdefault((name, way), []).append(values)
    if any(ends[way] for way in WAYS if way != "detail"):
        raise RuntimeError(f"a run failed: {ends}")
    for name, what in WHAT.items():
        plain = _column(results[name, "plain"], 0)
        for way, called in WAYS.items():
            if way == "plain":
                continue
            values = results.get((name, way), [])
            goal = Goal(10e-6, "added") if name == "collective" else Goal(1.02 if way == "ddpnb run" else 1.01)
            yield Row(
                "steps",
                f"{what}, gloo: {called}",
                _column(values, 0),
                peer="plain",
                theirs=plain,
                goal=goal if way in ("recording", "ddpnb", "ddpnb run") else None,
                note=_note(name, values, results[name, "plain"]) if values else f"no result: {ends[way]}",
            )


def _column(values: list[list[float]], at: int) -> tuple[float, ...]:
    return tuple(one[at] for one in values)


def _note(name: str, values: list[list[float]], plain: list[list[float]]) -> str:
    if name == "collective":
        added = statistics.median(_column(values, 0)) - statistics.median(_column(plain, 0))
        return f"adds {added * 1e6:.1f} us"
    took, of_plain = _column(values, 0), _column(plain, 0)
    error = "below 1: an error of measurement; " if statistics.median(took) < statistics.median(of_plain) else ""
    cpu, first = (statistics.median(_column(values, at)) / statistics.median(_column(plain, at)) for at in (2, 1))
    return f"{error}plain varies by {(max(of_plain) / min(of_plain) - 1) * 100:.1f} %; CPU time x{cpu:.3f}; first 100 steps x{first:.3f}"


if __name__ == "__main__":
    alone("door", calls, steps)
