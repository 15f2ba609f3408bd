"""Child processes of ranks: workers of a DataLoader, pools, and what the kernel has killed."""

from __future__ import annotations

import re

from ddpnb.recording.recording import Child, RankRecord, Recording
from ddpnb.recording.stacks import Frame, Stack

_LOADER = ("/torch/utils/data/",)
_PROCESSES = ("/multiprocessing/", "/concurrent/futures/process")
_REAPED_S = 2.0
_DEPTH = 12  # frames at the inner end that are looked at
_SENDER = re.compile(r"[/\\]multiprocessing[/\\](resource_tracker|forkserver)\.py$")
_QUEUES = ("/multiprocessing/", "/selectors.py", "/threading.py", "/queue.py")


def never_answer(record: RankRecord) -> str:
    """Why a rank that waits for its workers never gets an answer; empty where that is not proven.

    One of them is stuck or has died, and the others wait for their next task. Another thread of the rank could answer too.
    """
    if waits_for(record) is None or any(not stack.main and stack.innermost_user for stack in record.stacks):
        return ""
    reaped = record.process.idle_s < _REAPED_S  # soon: a pool replaces a worker that has exited
    gone = [child for child in record.children if child.stuck or (child.status == "Z" and not reaped)]
    if not gone or any(child not in gone and not _waits_for_task(child) for child in record.children):
        return ""
    stuck = [child for child in gone if child.stuck]
    if stuck:
        return f"process {stuck[0].pid} waits for a lock in its own memory, and has no other thread to release it"
    return f"process {gone[0].pid} has exited"


def _waits_for_task(child: Child) -> bool:
    inner = inside(child)
    return bool(inner) and "/multiprocessing/" in inner[-1].file and not any(frame.user for frame in inner)


def waits_for(record: RankRecord) -> str | None:
    """What kind of process the rank waits for, by its main thread's stack."""
    main = record.main_stack
    inside = [frame.file for frame in main.frames[-_DEPTH:] if not frame.user] if main is not None else []
    if any(part in file for file in inside for part in _LOADER):
        return "DataLoader worker" if _has_workers(record) else None
    return "child process" if record.children and any(p in f for f in inside for p in _PROCESSES) else None


def _has_workers(record: RankRecord) -> bool:
    main = record.main_stack
    waits = ("_get_data", "_try_get_data", "_shutdown_workers")
    return main is not None and any(frame.function in waits for frame in main.frames[-_DEPTH:] if not frame.user)


def kills_for_memory(recording: Recording) -> int:
    """How many processes the OOM killer has killed during the run: in the ranks' control groups; if that is not known, anywhere."""
    for name in ("oom_kills", "oom_kills_anywhere"):
        now, before = recording.host.get(name), recording.host.get(f"{name}_before")
        if isinstance(now, int) and isinstance(before, int):
            return max(now - before, 0)
    return 0


def counts_own(recording: Recording) -> bool:
    """Whether these are kills in the ranks' own control groups, or named in their logs."""
    return recording.host.get("oom_kills") is not None


def blocking_child(record: RankRecord) -> Child | None:
    """The child that blocks the rank: one that is stopped, else in the user's code, else not waiting for its next task."""
    known = [child for child in record.children if inside(child)]

    def weight(child: Child) -> tuple[bool, bool, bool, int]:
        inner = inside(child)
        users = sum(frame.user for frame in inner)
        return child.status in ("T", "t"), users > 0, not _reads_queue(inner), users

    return max(known, key=weight, default=None)


def is_busy(record: RankRecord) -> bool:
    """Whether a child of the rank is working on a task."""
    frames = [inside(child) for child in record.children]
    return any(any(frame.user for frame in inner) and not _reads_queue(inner) for inner in frames if inner)


def _reads_queue(frames: tuple[Frame, ...]) -> bool:
    """Whether it is where a worker waits for its next task."""
    return any(part in frames[-1].file for part in _QUEUES) if frames else False


def inside(child: Child) -> tuple[Frame, ...]:
    main = next((stack for stack in child.stacks if stack.main), child.stacks[0] if child.stacks else None)
    return _own_frames(main) if main is not None else ()


def _own_frames(stack: Stack) -> tuple[Frame, ...]:
    """What a child does itself: a forked one still shows the frames of its parent below its own beginning."""
    began = [
        place
        for place, frame in enumerate(stack.frames)
        if frame.function.rpartition(".")[2] == "_bootstrap" and "/multiprocessing/process.py" in frame.file
    ]
    frames = stack.frames[began[-1] + 1 :] if began else stack.frames
    return () if any(_SENDER.search(frame.file) for frame in frames[:2]) else frames
