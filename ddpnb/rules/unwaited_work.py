"""Asynchronous calls whose tensor is used before anything waits for them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from ddpnb.lint.unwaited import Unwaited, unwaited
from ddpnb.model import phrases
from ddpnb.model.calls import CallState, Site
from ddpnb.model.findings import Finding, FindingType, Hint
from ddpnb.model.recording import Recording
from ddpnb.source.branches import guards_of

WORK_NOT_WAITED = FindingType("DDP316", "work-not-waited", once_per_line=True)


def find(recording: Recording) -> Finding | None:
    """DDP316: after a line from which a call was made, the source uses the tensor before it waits."""
    found = {path: unwaited(source) for path, source in sorted(recording.sources.items()) if _may_be_async(source)}
    if not any(found.values()):
        return None
    made: dict[tuple[str, int], set[int]] = defaultdict(set)
    dropped: dict[tuple[str, int], set[int]] = defaultdict(set)
    for rank, record in recording.ranks.items():
        # A rank makes thousands of calls from a few lines.
        calls = {(id(call.site), call.state is CallState.DROPPED): call for call in record.calls}.values()
        for call in calls:
            path, _, line = call.site.via.rpartition(":")  # a function that returns the Work made the call
            places = [(call.site.file, call.site.line), *([(path, int(line))] if line.isdigit() else [])]
            for place in places:
                made[place].add(rank)
                if call.state is CallState.DROPPED:
                    dropped[place].add(rank)
    for path, ones in found.items():
        source = recording.sources[path]
        for one in ones:
            place = path, one.line
            if place in dropped:
                return _thrown_away(path, one, sorted(dropped[place]))
            if place in made:
                guarded = one.use_line and set(guards_of(source, one.use_line)) - set(guards_of(source, one.line))
                return _early_use(path, one, sorted(made[place]), guarded=bool(guarded))
    return None


def _may_be_async(source: str) -> bool:
    return "async_op" in source or "isend" in source or "irecv" in source


_WAIT = "Keep the handle and call handle.wait() before the tensor is read, changed or freed."


def _thrown_away(path: str, one: Unwaited, ranks: list[int]) -> Finding:
    """The Works of these ranks were deleted before anything waited for them."""
    site = Site(path, one.line, one.function)
    return Finding(
        WORK_NOT_WAITED,
        f"{phrases.ranks(ranks, True)} discarded the Work of {one.op}{phrases.at(site)} before anything waited for it.",
        tuple(ranks),
        where=tuple((rank, site) for rank in ranks),
        remedy=_WAIT,
        certainty="likely",
        hint=Hint(path, one.line, one.reason.rstrip(".")),
    )


def _early_use(path: str, one: Unwaited, ranks: list[int], *, guarded: bool) -> Finding:
    """The call was recorded; that it is asynchronous and used too early is read from the source: a warning."""
    site = Site(path, one.line, one.function)
    done = "changed" if one.changed else "used"
    unknown = " That line is under a condition: which of these ranks reach it was not recorded."
    finding = Finding(
        WORK_NOT_WAITED,
        f"{phrases.ranks(ranks, True)} called {one.op}{phrases.at(site)}. According to the source it is asynchronous, with no wait()"
        + (f" before {one.tensor} is {done}." if one.use_line else "."),
        tuple(ranks),
        where=tuple((rank, site) for rank in ranks),
        remedy=_WAIT,
        severity="warning",
        certainty="likely",
        hint=Hint(path, one.line, f"{one.reason}{unknown if guarded else ''}".rstrip(".")),
    )
    if guarded and len(ranks) > 1:
        return replace(finding, culprits=(), sides=tuple((rank,) for rank in ranks))
    return finding
