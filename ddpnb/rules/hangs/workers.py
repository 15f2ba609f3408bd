"""Ranks that wait for a child process: a DataLoader worker, an environment, a pool.

A rank that is blocked outside any collective (DDP313) may be blocked in its DataLoader: then the worker's stack shows
why (DDP507), or the worker has died unnoticed (DDP505).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ddpnb.facts.standings import Standing
from ddpnb.model import phrases
from ddpnb.model.calls import Site
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Child, RankRecord, Recording
from ddpnb.model.stacks import Frame, Stack

WORKER_DIED = FindingType("DDP505", "worker-died", after_patience=True)
WORKER_STALLED = FindingType("DDP507", "worker-stalled", after_patience=True)

_LOADER = ("/torch/utils/data/",)
_PROCESSES = ("/multiprocessing/", "/concurrent/futures/process")
_REAPED_S = 2.0
_DEPTH = 12  # frames at the inner end that are looked at
_SENDER = re.compile(r"[/\\]multiprocessing[/\\](resource_tracker|forkserver)\.py$")
_QUEUES = ("/multiprocessing/", "/selectors.py", "/threading.py", "/queue.py")


def stalled_worker(recording: Recording, standings: Mapping[int, Standing], finding: Finding) -> Finding | None:
    """DDP507 or DDP505 in place of a DDP313 whose culprits wait for a child process.

    Args:
        recording: what is known.
        standings: where each rank stands.
        finding: the DDP313.

    Returns:
        None where the ranks wait for something else.
    """
    ranks = [rank for rank in finding.culprits if rank in recording.ranks and rank in standings]
    waiting = {rank: what for rank in ranks if (what := _waits_for(recording.ranks[rank])) is not None}
    if not waiting or len(waiting) < len(finding.culprits):
        return None
    first = recording.ranks[ranks[0]]
    # Workers that have delivered all their batches exit too, before the others.
    dead = [child for child in first.children if child.status == "Z"] if not _busy(first) else []
    return _died(recording, standings, finding, dead) if dead else _stalled(recording, standings, finding, waiting)


def never_answer(record: RankRecord) -> str:
    """Why a rank that waits for its workers never gets an answer; empty where that is not proven.

    One of them is stuck or has died, and the others wait for their next task. Another thread of the rank could answer too.
    """
    if _waits_for(record) is None or any(not stack.main and stack.innermost_user for stack in record.stacks):
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
    inner = _inside(child)
    return bool(inner) and "/multiprocessing/" in inner[-1].file and not any(frame.user for frame in inner)


def _waits_for(record: RankRecord) -> str | None:
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


def _stalled(
    recording: Recording, standings: Mapping[int, Standing], finding: Finding, waiting: Mapping[int, str]
) -> Finding:
    evidence: list[str] = []
    places: dict[int, Site] = {}
    for rank in list(waiting)[:8]:
        record = recording.ranks[rank]
        child = _culprit(record)
        inner = _inside(child) if child is not None else ()
        if child is None or not inner:
            evidence.append(f"Rank {rank}'s workers could not be inspected.")
            continue
        user = [frame for frame in inner if frame.user]
        if user:
            places[rank] = user[-1].site
        stopped = " is stopped (SIGSTOP)" if child.status in ("T", "t") else " is stalled"
        evidence.append(
            f"Rank {rank}: its process {child.pid}{stopped} in {_describe(user[-1] if user else inner[-1])}"
            + (f", inside {_describe(inner[-1])}." if user and inner[-1] is not user[-1] else ".")
        )
    first = min(waiting)
    at = places.get(first, standings[first].site)
    what = waiting[first]
    culprits = finding.culprits
    summary = (
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'waits', 'wait')} for a {what} "
        f"that is stalled{phrases.at(at)}"
    )
    summary += (
        f"; {phrases.ranks(finding.waiting)} {phrases.verb(finding.waiting, 'waits', 'wait')} for "
        f"{phrases.verb(culprits, 'it', 'them')}."
        if finding.waiting
        else "."
    )
    return replace(
        finding,
        type=WORKER_STALLED,
        summary=summary,
        where=tuple((rank, places.get(rank, site)) for rank, site in finding.where),
        evidence=(*evidence, *finding.evidence),
        remedy="Resolve what the worker waits for (a lock that was held at the fork, a file, a queue, the network); "
        "timeout= of the DataLoader turns such a wait into an error.",
    )


def _died(recording: Recording, standings: Mapping[int, Standing], finding: Finding, dead: list[Child]) -> Finding:
    rank = finding.culprits[0]
    evidence = [f"Process {child.pid} of rank {rank} has exited and was not waited for." for child in dead[:8]]
    killed = _new_kills(recording)
    if killed:
        evidence.append(f"The kernel (OOM killer) has killed {killed} since the run began.")
    waits = phrases.verb(finding.waiting, "waits", "wait")
    waiting = f"; {phrases.ranks(finding.waiting)} {waits} for it." if finding.waiting else "."
    return replace(
        finding,
        type=WORKER_DIED,
        summary=f"Rank {rank} waits for a worker that has died{phrases.at(standings[rank].site)}{waiting}",
        evidence=(*evidence, *finding.evidence),
        remedy="Find out what ended the worker: memory that ran out (dmesg), or a crash in native code; "
        "fewer workers need less memory.",
    )


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


def _new_kills(recording: Recording) -> str:
    count = kills_for_memory(recording)
    return f"{count} process{'es' * (count > 1)}" if count else ""


def _culprit(record: RankRecord) -> Child | None:
    """The child that blocks the rank: one that is stopped, else in the user's code, else not waiting for its next task."""
    known = [child for child in record.children if _inside(child)]

    def weight(child: Child) -> tuple[bool, bool, bool, int]:
        inner = _inside(child)
        users = sum(frame.user for frame in inner)
        return child.status in ("T", "t"), users > 0, not _reads_queue(inner), users

    return max(known, key=weight, default=None)


def _busy(record: RankRecord) -> bool:
    """Whether a child of the rank is working on a task."""
    inside = [_inside(child) for child in record.children]
    return any(any(frame.user for frame in inner) and not _reads_queue(inner) for inner in inside if inner)


def _reads_queue(frames: tuple[Frame, ...]) -> bool:
    """Whether it is where a worker waits for its next task."""
    return any(part in frames[-1].file for part in _QUEUES) if frames else False


def _inside(child: Child) -> tuple[Frame, ...]:
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


def _describe(frame: Frame) -> str:
    return f"{frame.function} ({frame.file}:{frame.line})"
