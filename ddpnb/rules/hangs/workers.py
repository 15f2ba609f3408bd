"""Ranks that wait for a child process: a DataLoader worker, an environment, a pool.

A rank that is blocked outside any collective (DDP313) may be blocked in its DataLoader: then the worker's stack shows
why (DDP507), or the worker has died unnoticed (DDP505).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpnb.recording import phrases
from ddpnb.recording.calls import Site
from ddpnb.recording.facts.children import blocking_child, inside, is_busy, kills_for_memory, waits_for
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.recording.recording import Child, Recording
from ddpnb.recording.stacks import Frame
from ddpnb.rules.causes.blocked import in_a_call
from ddpnb.rules.rule import Draft, refine, refined, say, title, waited_for

WORKER_DIED = FindingType("DDP505", "worker-died", after_patience=True)
WORKER_STALLED = FindingType("DDP507", "worker-stalled", after_patience=True)


@refine(WORKER_DIED, WORKER_STALLED, refines=("DDP313",), after=("DDP109", "DDP317", "DDP707"), needs=("stacks",))
def worker(snap: Snapshot, finding: Finding) -> Draft | None:
    """Ranks wait for a child process that is stalled, or has died."""
    waiting = snap.ranks.among(finding.culprits).of(waits_for)
    if not waiting or len(waiting) < len(finding.culprits) or in_a_call(snap, finding):
        return None
    first = snap.ranks[finding.culprits[0]]
    # Workers that have delivered all their batches exit too, before the others.
    dead = [child for child in first.children if child.status == "Z"] if not is_busy(first) else []
    return _died(snap, finding, dead) if dead else _stalled(snap, finding, waiting)


def _stalled(snap: Snapshot, finding: Finding, waiting: Mapping[int, str]) -> Draft:
    evidence: list[str] = []
    places: dict[int, Site] = {}
    for rank in list(waiting)[:8]:
        record = snap.ranks[rank]
        child = blocking_child(record)
        inner = inside(child) if child is not None else ()
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
    at = places.get(first, snap.standings[first].site)
    what = waiting[first]
    culprits = finding.culprits
    text = "{who} [waits|wait] for a {what} that is stalled{at}"
    summary = say(text, culprits, what=what, at=phrases.at(at))
    rest = waited_for(culprits, finding.waiting)
    return refined(
        finding,
        WORKER_STALLED,
        summary=title(f"{summary}{rest}.", f"{summary}."),
        where=tuple((rank, places.get(rank, site)) for rank, site in finding.where),
        evidence=(*evidence, *finding.evidence),
        remedy="Resolve what the worker waits for (a lock that was held at the fork, a file, a queue, the network); "
        "timeout= of the DataLoader turns such a wait into an error.",
    )


def _died(snap: Snapshot, finding: Finding, dead: Sequence[Child]) -> Draft:
    rank = finding.culprits[0]
    evidence = [f"Process {child.pid} of rank {rank} has exited and was not waited for." for child in dead[:8]]
    killed = _new_kills(snap.recording)
    if killed:
        evidence.append(f"The kernel (OOM killer) has killed {killed} since the run began.")
    waiting = waited_for((rank,), finding.waiting)
    died = f"Rank {rank} waits for a worker that has died{phrases.at(snap.standings[rank].site)}"
    return refined(
        finding,
        WORKER_DIED,
        summary=title(f"{died}{waiting}.", f"{died}."),
        evidence=(*evidence, *finding.evidence),
        remedy="Find out what ended the worker: memory that ran out (dmesg), or a crash in native code; "
        "fewer workers need less memory.",
    )


def _new_kills(recording: Recording) -> str:
    count = kills_for_memory(recording)
    return f"{count} process{'es' * (count > 1)}" if count else ""


def _describe(frame: Frame) -> str:
    return f"{frame.function} ({frame.file}:{frame.line})"
