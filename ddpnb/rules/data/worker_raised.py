"""Exceptions of a DataLoader's worker, or of another thread or process of torch, which are raised again in the rank."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddpnb.facts.snapshot import Snapshot
from ddpnb.facts.tracebacks import error_line, user_line
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE
from ddpnb.model.ending import Ending
from ddpnb.model.recording import RankRecord
from ddpnb.rules.hangs.endings import RANK_RAISED
from ddpnb.rules.rule import Draft, family, refined, say, title
from ddpnb.texts import shortened

_CAUGHT = re.compile(r"Caught \w{1,100} in ([\w ]{1,100})\.\nOriginal (Traceback .*)", re.DOTALL)


@family(RANK_RAISED, after=("DDP401",), refines=(RANK_RAISED.code,), failure=True, needs=())
def worker_raised(snap: Snapshot) -> Iterable[Draft]:
    """In the words of the worker, and with its line."""
    for finding in snap.found(RANK_RAISED.code):
        rank, (worker, traceback) = next(iter(snap.ranks.among(finding.culprits).of(_caught).items()), (-1, ("", "")))
        error, place = shortened(error_line(traceback), 200), user_line(traceback)
        if not error:
            continue
        where = ((rank, place),) if place != NO_SITE else ()
        waits = (
            say("; {others} [waits|wait] for it", finding.waiting, others=finding.waiting) if finding.waiting else ""
        )
        alone = "DataLoader(..., num_workers=0) raises it in the rank itself, where a debugger stops."
        yield refined(
            finding,
            finding.type,
            summary=title(
                phrases.sentence(f"{worker[0].upper()}{worker[1:]} of rank {rank} raised {error}{waits}"),
                phrases.sentence(f"{worker[0].upper()}{worker[1:]} of rank {rank} raised {error}"),
                phrases.sentence(f"{worker[0].upper()}{worker[1:]} of rank {rank} raised {error.partition(':')[0]}"),
            ),
            where=(*where, *finding.where),
            evidence=(f"It was raised{phrases.at(place)}, and again in rank {rank}.", *finding.evidence),
            remedy=f"{finding.remedy} {alone}" if worker.startswith("DataLoader worker") else finding.remedy,
        )


def _caught(record: RankRecord) -> tuple[str, str] | None:
    """The worker, and its traceback."""
    ending: Ending | None = record.ending
    found = _CAUGHT.match(ending.message[:20_000]) if ending is not None else None
    return (found[1], found[2]) if found else None
