"""Adds to a finding where its ranks part: the decision at which its culprits, or its sides, left the way of the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.facts.paths.partings import Differences, differences, parting
from ddpnb.recording.findings import Finding
from ddpnb.recording.parting import Harmless, Parting
from ddpnb.recording.recording import RankRecord, Recording

_MOST = 8  # ranks of a side that are compared
_SHOWN = 2  # differences after which ranks met again

_PRINTS = re.compile(
    r"(print|pprint|log|logs?\w*\.\w+|logging\.\w+|warnings\.warn|tqdm\.write|sys\.std(out|err)\.\w+)\("
)

_Sides = Sequence[tuple[int, ...]]


def located(recording: Recording, finding: Finding) -> Finding:
    """The finding with the decision at which its ranks part; itself if none is known."""
    waiting = finding.waiting or phrases.besides((rank for rank, _ in finding.moments), finding.culprits)
    alone = not waiting and not finding.moments  # each of the culprits stands against the others
    culprits = [(rank,) for rank in finding.culprits] if alone else [finding.culprits]
    sides = finding.sides or (*culprits, *([waiting] if waiting else ()))
    if len(sides) < 2:
        return finding
    if finding.moments:
        return _until_it_shows(recording, finding, sides)
    if not finding.type.ways_part:
        return finding
    others = tuple(rank for side in sides[1:] for rank in side)
    known = parting(recording, sides[0], others)
    if known is not None:
        return _parted(recording, finding, sides, known)
    found = differences(recording, sides[0], others)
    ranks = (*sides[0], *others) if finding.sides else sides[0]
    return _differed(recording, finding, ranks, found) if found.harmless else finding


def _parted(recording: Recording, finding: Finding, sides: _Sides, known: Parting) -> Finding:
    ranks = {rank for way in known.ways for rank in way.ranks} & {rank for side in sides for rank in side}
    first = finding.culprits or finding.sides[0]
    order = sorted(ranks, key=lambda rank: (rank not in first, rank))
    user = (
        known.callers[-1:] if known.site.file not in recording.sources else ()
    )  # the user's line that called a package
    decided = [(rank, site) for site in (*user, known.site) for rank in order]
    decided += [(rank, way.to) for way in known.ways for rank in way.ranks if rank in first and way.to != NO_SITE]
    if user or known.kind in (
        "call",
        "operation",
        "loop",
    ):  # how many items there are, or what they are like, was decided before
        before = [one for one in known.harmless if one.site != known.site]
        decided += [(rank, one.site) for one in before[:1] for rank in order]
    return replace(
        finding,
        parting=known.quoted(recording.sources, recording.edited),
        where=_before(decided, finding),
        hint=None,
    )


def _until_it_shows(recording: Recording, finding: Finding, sides: _Sides) -> Finding:
    """With what ranks did differently up to the optimizer step in which a look at them shows the finding."""
    then = dict(finding.moments)
    for side in sides:
        ranks = tuple(rank for rank in side if rank in then)[:_MOST]
        others = tuple(rank for other in sides if other is not side for rank in other if rank in then)[:_MOST]
        if ranks and others:
            step = _step(recording.ranks[ranks[0]], then[ranks[0]])
            found = differences(recording, ranks, others, step)
            if found.parting is not None:
                return _parted(recording, finding, sides, found.parting)
            if found.harmless:
                return _differed(recording, finding, (*ranks, *others) if finding.sides else ranks, found)
    return finding


def _step(record: RankRecord, at_ns: int) -> int | None:
    """The number of the last optimizer step that a look at a time can show: it was before the step, or just after it."""
    begun = [mark.steps for mark in record.marks if mark.kind == "step" and mark.at_ns <= at_ns]
    updated = any(sample.at_ns == at_ns and sample.kind == "updated" for sample in record.samples)
    return max(begun[-1] + (not updated), 1) if begun else 1


def _differed(recording: Recording, finding: Finding, ranks: tuple[int, ...], found: Differences) -> Finding:
    shown = sorted(found.harmless, key=lambda one: _prints(recording, one))[:_SHOWN]
    went = [(rank, one.site, to) for one in shown for side, to in one.ways for rank in side if rank in ranks]
    places = [(rank, site) for rank, site, _ in went] + [(rank, to) for rank, _, to in went if to != NO_SITE]
    return replace(
        finding,
        where=_before(places, finding),
        evidence=(*finding.evidence, *map(_says, shown)),
        hint=None,
    )


def _prints(recording: Recording, one: Harmless) -> bool:
    """Whether ranks differ only in that some print or log something there, which seldom is a cause."""
    ways = [_text(recording, to) for _, to in one.ways if to not in (NO_SITE, one.site)]
    return any(map(_PRINTS.match, (one.text, *ways)))


def _text(recording: Recording, site: Site) -> str:
    lines = recording.sources.get(site.file, "").split("\n")
    return lines[site.line - 1].strip() if 0 < site.line <= len(lines) else ""


def _says(one: Harmless) -> str:
    text = f" (`{one.text}`)" if one.text else ""
    ways = [f"{phrases.ranks(side)} {_way(one.site, to)}" for side, to in sorted(one.ways)]
    apart = f": {', '.join(ways)}" if len({to for _, to in one.ways}) > 1 else ""
    return f"Before it showed, ranks took different ways at {one.site}{text}{apart}."


def _way(site: Site, to: Site) -> str:
    if to == NO_SITE:
        return "out of the function"
    return f"to line {to.line}" if (to.file, to.line) != (site.file, site.line) else "past it"


def _before(places: Sequence[tuple[int, Site]], finding: Finding) -> tuple[tuple[int, Site], ...]:
    """These places first, and then those of the finding."""
    return (*dict.fromkeys(places), *(place for place in finding.where if place not in places))
