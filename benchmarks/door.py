"""What the door costs: per collective on a fake backend, per DDP step on gloo, and what all of ddpnb costs end to end.

Four rows in one run: plain, a bare crossing into Python and back, the door with record and fence,
and ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` (where torch survives it). End to end: the same script in plain interpreters, with
the recorder in them, by ``ddpnb run --record``, and by ``ddpnb run``, whose watchdog runs on the same cores. ``python -m benchmarks.door end`` prints
only this, ``python -m benchmarks.door end 400 200 4``: as many steps are measured after as many others, in as many runs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile

PROCESSES, ROUNDS, CALLS = 5, 7, 4000

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
elif kind == "door":
    from ddpnb.recorder.blackbox import BlackBox
    from ddpnb.recorder.door import Door
    from ddpnb.recorder.waits import watched
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


def per_call() -> None:
    kinds = ("plain", "bare crossing", "door")
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(PROCESSES):  # in turn, so that a drift of the machine meets all alike
        for kind in kinds:
            command = [sys.executable, "-c", CALL, kind, str(ROUNDS), str(CALLS)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
            times[kind].append(float(done.stdout.split()[-1]))
    plain = statistics.median(times["plain"])
    print(f"all_reduce of 4 floats, fake backend, 4 ranks: us per call, median of {PROCESSES} processes")
    for kind, values in times.items():
        middle = statistics.median(values)
        print(f"  {kind:<16}{middle:8.2f}   adds {middle - plain:6.2f}   x{middle / plain:.2f}")


STEP = """
import os, statistics, sys, tempfile, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
kind = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(256, 512)
def steps(n):
    times = []
    for _ in range(n):
        began = time.perf_counter()
        model(data).square().mean().backward()
        optimizer.step(); optimizer.zero_grad()
        times.append(time.perf_counter() - began)
    return times
steps(5)
if kind == "detail":
    out = {"detail": steps(60)}
else:
    from ddpnb.recorder.blackbox import BlackBox
    from ddpnb.recorder.door import Door
    from ddpnb.recorder.waits import watched
    from ddpnb.recorder.phases import Phases
    folder = os.environ["BENCH_FOLDER"]
    box = BlackBox(os.path.join(folder, f"rank{rank}.box"), rank)
    door = Door(box, folder); phases = Phases(box, door)
    out = {"plain": [], "door": []}
    for _ in range(12):
        dist.barrier(); out["plain"] += steps(10)
        dist.barrier(); door.open(); phases.install()
        out["door"] += steps(10)
        dist.barrier(); door.close(); phases.remove()
if rank == 0:
    for name, values in out.items():
        print("RESULT", name, statistics.median(values) * 1e3, flush=True)
dist.barrier()
os._exit(0)
"""


def per_step() -> None:
    torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
    print("a DDP step (8 x Linear(512), batch 256), gloo, 2 ranks: median ms on rank 0")
    medians = {}
    for kind, more in (("door", {}), ("detail", {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            script = os.path.join(folder, "step.py")
            with open(script, "w") as file:
                file.write(STEP)
            environment = {**os.environ, "BENCH_FOLDER": folder, "OMP_NUM_THREADS": "1", **more}
            done = subprocess.run(
                [torchrun, "--nproc-per-node", "2", script, kind],
                capture_output=True, text=True, env=environment, timeout=300, check=False,
            )  # fmt: skip
        rows = [line.split() for line in done.stdout.splitlines() if line.startswith("RESULT")]
        medians |= {name: float(value) for _, name, value in rows}
        if not rows:
            print(
                f"  {kind}: no result (exit status {done.returncode}): {'Signal 11' in done.stderr and 'segmentation fault'}"
            )
    for name, value in medians.items():
        print(f"  {name:<8}{value:8.2f}   x{value / medians['plain']:.4f}")


END = """
import statistics, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
warm, count = map(int, sys.argv[1:])
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(256, 512)
times, cpu = [], []
for _ in range(warm + count):
    began, used = time.perf_counter(), time.process_time()
    model(data).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
    times.append(time.perf_counter() - began)
    cpu.append(time.process_time() - used)
if dist.get_rank() == 0:
    means = [statistics.mean(one) * 1e3 for one in (times[warm:], cpu[warm:], times[:100])]
    print("RESULT", *means, flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def _with_recorder(folder: str) -> dict[str, str] | None:
    """The environment of a rank in which the recorder starts by itself; None: this version has none."""
    try:
        from ddpnb.processes.jobs.injection import injected
    except ImportError:
        return None
    return injected(os.environ, folder, "warn")


def _ranks(environment: dict[str, str], command: list[str]) -> str:
    """The output of two interpreters, as torchrun would start them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    started: list[subprocess.Popen[str]] = []
    try:
        for rank in ("0", "1"):
            of_rank = {**environment, **shared, "RANK": rank, "LOCAL_RANK": rank}
            started.append(subprocess.Popen(command, env=of_rank, stdout=subprocess.PIPE, text=True))
        return "".join(process.communicate(timeout=600)[0] for process in started)
    finally:
        for process in started:
            with contextlib.suppress(OSError):
                process.kill()
            process.wait()


def end_to_end(count: int = 400, warm: int = 200, runs: int = 4) -> None:
    print(f"a DDP step of about 18 ms, gloo, 2 ranks: mean of {count} after {warm}, in turn, best of {runs}")
    found: dict[str, list[list[float]]] = {"plain": [], "recorder": [], "--record": [], "ddpnb run": []}
    for _ in range(runs):
        for kind, results in found.items():
            with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
                script = os.path.join(folder, "end.py")
                with open(script, "w") as file:
                    file.write(END)
                command = [sys.executable, script, str(warm), str(count)]
                if kind in ("ddpnb run", "--record"):
                    with tempfile.TemporaryDirectory() as records:  # on a disk
                        options = ["--record", "--dir", records] if kind == "--record" else []
                        by = [sys.executable, "-m", "ddpnb", "run", *options, "-n", "2", *command[1:]]
                        out = subprocess.run(by, capture_output=True, text=True, timeout=600, check=False).stdout
                else:
                    environment = _with_recorder(folder) if kind == "recorder" else dict(os.environ)
                    out = "" if environment is None else _ranks(environment, command)
            results += [
                [float(n) for n in line.partition("RESULT")[2].split()] for line in out.splitlines() if "RESULT" in line
            ]
    plain = [min(column) for column in zip(*found["plain"], strict=True)]
    for kind, results in found.items():
        if not results:
            print(f"  {kind:<10} no result")
            continue
        best = [min(column) for column in zip(*results, strict=True)]
        told = zip(("ms a step", "ms of CPU time", "ms in the first 100"), best, plain, strict=True)
        print(f"  {kind:<10}" + ",  ".join(f"{value:7.2f} {what} x{value / base:.3f}" for what, value, base in told))


if __name__ == "__main__":
    if sys.argv[1:2] == ["end"]:
        end_to_end(*map(int, sys.argv[2:]))
    else:
        per_call()
        per_step()
        end_to_end()
