"""Exceptions of a DataLoader's worker, or of another thread or process of torch, which are raised again in the rank."""

from __future__ import annotations

import re

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.ending import Ending
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.tracebacks import error_line, user_line
from ddpnb.recording.findings import Finding
from ddpnb.recording.recording import RankRecord
from ddpnb.rules.hangs.endings import RANK_RAISED
from ddpnb.rules.rule import Draft, refine, refined, title, waited_for
from ddpnb.texts import shortened

_CAUGHT = re.compile(r"Caught \w{1,100} in ([\w ]{1,100})\.\nOriginal (Traceback .*)", re.DOTALL)


@refine(RANK_RAISED, refines=(RANK_RAISED.code,), after=("DDP401",), needs=())
def worker_raised(snap: Snapshot, finding: Finding) -> Draft | None:
    """In the words of the worker, and with its line."""
    rank, (worker, traceback) = next(iter(snap.ranks.among(finding.culprits).of(_caught).items()), (-1, ("", "")))
    error, place = shortened(error_line(traceback), 200), user_line(traceback)
    if not error:
        return None
    waits = waited_for((rank,), finding.waiting)
    alone = "DataLoader(..., num_workers=0) raises it in the rank itself, where a debugger stops."
    says = (f"{error}{waits}", error, error.partition(":")[0])
    return refined(
        finding,
        finding.type,
        summary=title(
            *(phrases.sentence(f"{worker[0].upper()}{worker[1:]} of rank {rank} raised {what}") for what in says)
        ),
        where=(*(((rank, place),) if place != NO_SITE else ()), *finding.where),
        evidence=(f"It was raised{phrases.at(place)}, and again in rank {rank}.", *finding.evidence),
        remedy=f"{finding.remedy} {alone}" if worker.startswith("DataLoader worker") else finding.remedy,
    )


def _caught(record: RankRecord) -> tuple[str, str] | None:
    """The worker, and its traceback."""
    ending: Ending | None = record.ending
    found = _CAUGHT.match(ending.message[:20_000]) if ending is not None else None
    return (found[1], found[2]) if found else None
