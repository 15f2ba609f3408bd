"""Processes that failed but exited with status 0."""

from __future__ import annotations

import re

from ddpnb.facts.places import known
from ddpnb.facts.standings import last_site
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.texts import shortened

EXIT_CODE_MASKED = FindingType("DDP701", "exit-code-masked")


_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):$", re.MULTILINE)
_OTHERWHERE = re.compile(r"^(Exception in thread|Process \w+-\d+:)", re.MULTILINE)
_FRAME = re.compile(r'^ {1,8}File "(.{1,400})", line (\d{1,7}), in (.{1,200})$', re.MULTILINE)
_LIBRARY = re.compile(r"/(site-packages|dist-packages|lib/python\d|ddpnb/recorder/)|^<")


def find(recording: Recording) -> Finding | None:
    return _printed_failure(recording) or _left_by_force(recording) or _became_zero(recording)


def _printed_failure(recording: Recording) -> Finding | None:
    """DDP701: a rank exits with status 0 right after printing a traceback."""
    places: dict[int, Site] = {}
    last: dict[int, str] = {}
    for rank, record in recording.ranks.items():
        if record.ending is None or not record.ending.well or record.ending.how == "died":
            continue
        output = record.output.replace("\r", "")
        starts = [match.start() for match in _TRACEBACK.finditer(output)]
        if not starts:
            continue
        told = output[starts[-1] :].splitlines()
        end = next((n for n, line in enumerate(told[1:], 1) if line and not line.startswith(" ")), len(told) - 1)
        after = [line for line in told[end + 1 :] if line.strip()]
        if not _OTHERWHERE.search(output[max(0, starts[-1] - 200) : starts[-1]]) and len(after) > 1:
            continue  # the script continued after it
        frames = [m for m in _FRAME.finditer("\n".join(told[: end + 1])) if not _LIBRARY.search(m[1])]
        places[rank] = Site(frames[-1][1], int(frames[-1][2]), frames[-1][3]) if frames else NO_SITE
        last[rank] = shortened(told[end], 200) if told else ""
    if not places:
        return None
    ranks = tuple(sorted(places))
    return Finding(
        EXIT_CODE_MASKED,
        f"{phrases.ranks(ranks, True)} failed but exited with status 0, after "
        f"{last[ranks[0]].split(':')[0] or 'a traceback'}.",
        ranks,
        where=known((rank, places[rank]) for rank in ranks),
        evidence=tuple(
            f"Rank {rank} exited with status 0; the last error that it printed: {last[rank]}" for rank in ranks[:8]
        ),
        remedy="Let the exception end the process (or call sys.exit(1) after printing it); join threads and child processes and "
        "check how they ended. A launcher detects a failure by the exit status only.",
        certainty="likely",
    )


def _left_by_force(recording: Recording) -> Finding | None:
    """DDP701: all processes exit with status 0, some of them inside a call that the others did not reach."""
    if not recording.ranks or not all(left_quietly(record) for record in recording.ranks.values()):
        return None
    last = {rank: calls[-1] for rank, r in recording.ranks.items() if (calls := [c for c in r.calls if c.seq])}
    lost = {rank: call for rank, call in sorted(last.items()) if call.state.name != "COMPLETED"}
    reached = max((call.seq for call in lost.values()), default=0)
    first = [rank for rank, call in sorted(last.items()) if call.seq < reached]
    if not first:
        return None
    return Finding(
        EXIT_CODE_MASKED,
        f"{phrases.ranks(first, True)} exited with status 0 in the middle of the run.",
        tuple(first),
        where=known((rank, last_site(recording.ranks[rank])) for rank in first),
        evidence=tuple(
            f"Rank {rank} was in {call.title} then, and exited with status 0 too." for rank, call in lost.items()
        )[:8],
        remedy="Exit with a non-zero status when training failed: no os._exit(0) or sys.exit(0) in a finally.",
    )


def _became_zero(recording: Recording) -> Finding | None:
    """DDP701: a number that the system cuts to 0 was to say that the program failed."""
    asked = {
        rank: ending.asked
        for rank, record in sorted(recording.ranks.items())
        if (ending := record.ending) is not None and ending.asked and not ending.code
    }
    if not asked:
        return None
    ranks = tuple(asked)
    return Finding(
        EXIT_CODE_MASKED,
        f"{phrases.ranks(ranks, True)} exited with status 0 although the code was {asked[ranks[0]]}: the system keeps one byte of it.",
        ranks,
        where=known((rank, last_site(recording.ranks[rank])) for rank in ranks),
        evidence=tuple(f"Rank {rank} {recording.ranks[rank].ending}." for rank in ranks[:8]),
        remedy="Exit with a status between 1 and 255 if this was a failure: a launcher counts 0 as success.",
        severity="warning",
    )


def left_quietly(record: RankRecord) -> bool:
    """Whether a process exited with status 0 before the script ended."""
    return record.ending is not None and record.ending.how == "died" and record.ending.code == 0
