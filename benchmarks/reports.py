"""Flight-recorder dumps against torch's own analyser: ``python -m benchmarks.reports [RANKS ...]``.

Each rank has 2,000 entries with stacks, in the layout of torch's NCCL dumps: all-reduces of the default group, and all-gathers of
groups of eight. Rank 3 does not make the last all-reduce, in which all others wait. `ddpnb diagnose` and torch's program
run in processes of their own, in turn, from the files to the text that they print. Memory is the sum of the peaks of all
processes of a program.
"""

from __future__ import annotations

import pickle
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rows import Goal, Row
from benchmarks.show import alone

RANKS, ROUNDS, ENTRIES, ROW = (64, 256, 1024), 3, 2000, 8
OFFICIAL_UP_TO = 64  # ranks: it takes minutes for more
TORCH = "/opt/venv/lib/python3.11/site-packages/torch/"
MISSING = 3
MISSED = rf"(?i)missing[^\n]*\b{MISSING}\b"

OURS = "from ddpnb.cli import main; import sys; sys.exit(main(['diagnose', *sys.argv[1:]]))"
OFFICIAL = "from torch.distributed.flight_recorder.fr_trace import main; import sys; main(sys.argv[1:])"


def frames(depth: int, line: int) -> list[dict[str, Any]]:
    """A stack of a training step, innermost first."""
    inner = [
        ("all_reduce", TORCH + "distributed/distributed_c10d.py", 2501),
        ("wrapper", TORCH + "distributed/c10d_logger.py", 83),
    ]
    own = [("average", "/workspace/model/averaging.py", line), ("step", "/workspace/model/trainer.py", 210)]
    modules = [(f"forward_{n}", TORCH + "nn/modules/module.py", 1700 + n) for n in range(depth - 7)]
    outer = [
        ("train", "/workspace/model/trainer.py", 88),
        ("main", "/workspace/train.py", 40),
        ("<module>", "/workspace/train.py", 61),
    ]
    return [{"name": n, "filename": f, "line": at} for n, f, at in (*inner, *own, *modules, *outer)]


STACKS = [frames(16 + n % 5, 30 + n) for n in range(12)]


def entry(number: int, seq: int, name: str, group: tuple[str, str], size: list[int], done: bool) -> dict[str, Any]:
    created = 1_795_423_643_000_000_000 + number * 20_000_000
    return {
        "frames": list(STACKS[number % len(STACKS)]),
        "record_id": number,
        "pg_id": int(group[0]),
        "process_group": (group[0], group[1]),
        "thread_name": "python3",
        "thread_id": "140106793020288",
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": name,
        "time_created_ns": created,
        "input_sizes": [size],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [size],
        "output_dtypes": ["BFloat16"],
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": created + 5_000_000 if done else None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def write(folder: str, world: int, entries: int = ENTRIES, kind: str = "missing rank") -> None:
    """The dumps of so many ranks, each with so many entries (an even number).

    Args:
        folder: where they are written.
        world: the number of ranks.
        entries: of each rank.
        kind: ``"missing rank"``: rank 3 does not make the last all-reduce; ``"mismatch"``: it makes another one;
            ``"healthy"``: all calls are complete.
    """
    for rank in range(world):
        first = rank // ROW * ROW
        own = str(1 + rank // ROW)
        members = {"0": ("default_pg", range(world)), own: ("tp", range(first, min(first + ROW, world)))}
        made: list[dict[str, Any]] = []
        odd = rank == MISSING
        for number in range(entries - (odd and kind == "missing rank")):
            done = number < entries - 1 or kind == "healthy"
            if number % 2:
                size = 1024 + number % 24 + (odd and kind == "mismatch" and not done)
                made.append(entry(number, number // 2 + 1, "nccl:all_reduce", ("0", "default_pg"), [size], done))
            else:
                made.append(entry(number, number // 2 + 1, "nccl:_all_gather_base", (own, "tp"), [4096], done))
        held = {
            "version": "2.10",
            "pg_config": {
                name: {"name": name, "desc": desc, "ranks": str(list(ranks))} for name, (desc, ranks) in members.items()
            },
            "comm_lib_version": "2.27.5",
            "pg_status": {},
            "entries": made,
        }
        Path(folder, f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(held, 2))


@dataclass
class Run:
    """A program: how long it took, with the processor time of all its processes, their memory, and what it printed."""

    seconds: float
    processor: float
    memory: float
    text: str


def run(code: str, *arguments: str) -> Run:
    peaks: dict[int, int] = {}
    with tempfile.TemporaryFile("w+") as output:
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=output, stderr=subprocess.STDOUT)
        while process.poll() is None:
            for pid in [process.pid, *children(process.pid)]:
                peaks[pid] = max(peaks.get(pid, 0), peak(pid))
            time.sleep(0.02)
        took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        output.seek(0)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Run(took, processor, sum(peaks.values()) / 1024, output.read())


def children(pid: int) -> list[int]:
    try:
        return [int(own) for path in Path(f"/proc/{pid}/task").glob("*/children") for own in path.read_text().split()]
    except OSError:
        return []


def peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def dumps(worlds: tuple[int, ...], rounds: int) -> Iterator[Row]:
    for world in worlds:
        with tempfile.TemporaryDirectory() as folder:
            write(folder, world)
            size = sum(path.stat().st_size for path in Path(folder).iterdir()) >> 20
            ours, theirs = list[Run](), list[Run]()
            for _ in range(rounds):
                ours.append(run(OURS, folder))
                if world <= OFFICIAL_UP_TO:
                    theirs.append(run(OFFICIAL, folder, "-p", "nccl_trace_rank_"))
        if f"{MISSING}" not in ours[0].text or "all_reduce" not in ours[0].text:
            raise RuntimeError(f"the missing rank is not named: {ours[0].text[:200]}")
        what = f"dumps of {world} ranks, {size} MB"
        peer = "torchfrtrace" if theirs else ""
        rates = [tuple(world / one.seconds for one in made) for made in (ours, theirs)]
        goal = {64: Goal(5.0, least=True), 256: Goal(10.0, least=True), 1024: Goal(102.4, "median", least=True)}.get(
            world
        )
        note = f"{statistics.median(one.seconds for one in ours):.2f} s, processor {statistics.median(one.processor for one in ours):.1f} s"
        if theirs:
            note += f"; peer {statistics.median(one.seconds for one in theirs):.2f} s, {'names' if re.search(MISSED, theirs[0].text) else 'does not name'} the missing rank"
        yield Row("reports", f"{what}: speed", rates[0], "dumps/s", peer, rates[1], goal, note)
        memory = [tuple(one.memory for one in made) for made in (ours, theirs)]
        goal = Goal(0.2) if world == 256 else Goal(1000.0, "median") if world == 1024 else None
        yield Row("reports", f"{what}: peak memory of all processes", memory[0], "MB", peer, memory[1], goal)


def reports(quick: bool = False) -> Iterator[Row]:
    """flight-recorder dumps analysed"""
    yield from dumps((8,) if quick else RANKS, 1 if quick else ROUNDS)


if __name__ == "__main__":
    given = tuple(int(one) for one in sys.argv[1:] if one.isdigit())
    alone("reports", (lambda quick: dumps(given, ROUNDS)) if given else reports)
