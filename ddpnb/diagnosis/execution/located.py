"""Adds to a finding what each rank executed: where its culprits left the way of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ddpnb.diagnosis.execution.departure import Departure
from ddpnb.diagnosis.execution.departures import MOST, departure, departures
from ddpnb.diagnosis.execution.handled import handled
from ddpnb.diagnosis.execution.parts import between
from ddpnb.diagnosis.paths.partings import parting
from ddpnb.model import phrases
from ddpnb.model.calls import Site
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.source.ways import handler_at
from ddpnb.texts import shortened

_LINES = 3
_LOOKS = 8  # that are gone back: about two steps
_SHORT = 60  # characters of a line


def located(recording: Recording, finding: Finding) -> Finding:
    """The finding with the lines at which its culprits, or its sides, left the way of the others; itself if none is known."""
    waiting = finding.waiting or phrases.besides((rank for rank, _ in finding.moments), finding.culprits)
    alone = not waiting and not finding.moments  # each of the culprits stands against the others
    culprits = [(rank,) for rank in finding.culprits] if alone else [finding.culprits]
    sides = finding.sides or (*culprits, *([waiting] if waiting else ()))
    if len(sides) < 2 or not (finding.type.ways_part or finding.moments):
        return finding
    if not finding.moments and (parted := _parted(recording, finding, sides)) is not None:
        return parted
    found: list[Departure] = []
    for side in finding.sides or culprits:
        others = tuple(rank for other in sides if other is not side for rank in other)
        others += finding.waiting if finding.sides else ()
        if finding.moments:
            found += _at_moments(recording, finding, side, others)
        elif finding.collective is not None:
            found += departures(recording, side, others, finding.collective)
    if not found:
        return finding
    return replace(
        finding,
        where=_where(recording, finding, found),
        evidence=(*finding.evidence, *_says(recording, found)),
        hint=None,
    )


def _parted(recording: Recording, finding: Finding, sides: Sequence[tuple[int, ...]]) -> Finding | None:
    """The finding with the decision at which its sides part; None: their paths do not show it."""
    known = parting(recording, sides[0], tuple(rank for side in sides[1:] for rank in side))
    if known is None:
        return None
    ranks = {rank for way in known.ways for rank in way.ranks} & {rank for side in sides for rank in side}
    first = finding.culprits or finding.sides[0]
    order = sorted(ranks, key=lambda rank: (rank not in first, rank))
    decided = [(rank, known.site) for rank in order]
    decided += [(rank, way.to) for way in known.ways for rank in way.ranks if rank in first]
    if known.kind in ("operation", "loop"):  # how many items there are, or what they are like, was decided before
        decided += [(rank, one.site) for one in known.harmless[:1] for rank in order]
    rest = (place for place in finding.where if place not in decided)
    quoted = known.quoted(recording.sources, recording.edited)
    return replace(finding, parting=quoted, where=(*decided, *rest), hint=None)


def _at_moments(recording: Recording, finding: Finding, ranks: Sequence[int], others: Sequence[int]) -> list[Departure]:
    """From the last look at each rank before the one that shows the finding, or, if they ran the same since, from one before.

    From the beginning if it is no look that shows it.
    """
    mine, theirs = ranks[:MOST], others[:MOST]
    moments = {rank: then for rank, then in finding.moments if rank in mine or rank in theirs}
    if moments.keys() < {*mine, *theirs}:
        return []
    looks = {
        rank: [at for at in sorted(sample.at_ns for sample in recording.ranks[rank].samples) if at <= then]
        for rank, then in moments.items()
    }
    places = dict(reversed(finding.where))
    for back in range(2, 2 + _LOOKS):
        began = {rank: at[-back] if len(at) >= back and at[-1] == moments[rank] else 0 for rank, at in looks.items()}
        part = between(recording, {rank: (began[rank], then) for rank, then in moments.items()}, places)
        found = [departure(part, recording.sources, rank, theirs) for rank in mine] if part is not None else []
        ways = [way for way in found if way is not None]
        if ways or not any(began.values()):
            return ways
    return []


def _where(recording: Recording, finding: Finding, found: Sequence[Departure]) -> tuple[tuple[int, Site], ...]:
    """The places of the departures first; where a rank was last seen before it ended adds nothing to that."""
    left = [
        (way.rank, site) for way in found for site in dict.fromkeys((way.site, *way.further, *_raised(recording, way)))
    ]
    ranks = {way.rank for way in found}
    ends = {rank: recording.ranks[rank].ending for rank in ranks if not finding.moments}
    ended = {rank for rank, ending in ends.items() if ending is not None and ending.how != "raised"}
    rest = ((rank, site) for rank, site in finding.where if rank not in ended and (rank, site) not in left)
    return (*left, *rest)


def _says(recording: Recording, found: Sequence[Departure]) -> list[str]:
    """One sentence for all ranks that left at one place."""
    alike: dict[tuple[str, Site, Site | None], list[Departure]] = {}
    for way in found:
        alike.setdefault((way.kind, way.site, way.missed), []).append(way)
    return [_sentence(recording, ways[0], [way.rank for way in ways]) for ways in alike.values()]


def _sentence(recording: Recording, way: Departure, ranks: Sequence[int]) -> str:
    at = _shown(recording, way.site)
    steps = "; ".join(f"{_shown(recording, header)}, and then not {line}" for header, line in way.inside)
    inside = f" {phrases.ranks(ranks, True)} also ran {steps}." if steps else ""
    if way.kind == "loop":
        alone = "".join(f" Before, only {phrases.ranks(ranks)} ran {_shown(recording, site)}." for site in way.alone)
        then = f"did not run {_shown(recording, way.missed)} again" if way.missed else f"ran {way.after}"
        return f"{phrases.ranks(ranks, True)} left the loop at {at} and {then}.{inside}{alone}"
    if way.missed is not None:
        missed = _shown(recording, way.missed)
        return f"{phrases.ranks(ranks, True)} ran {at} and then not {missed}.{inside}"
    if way.kind == "lines":
        first, *more = way.alone[:_LINES]
        lines = [_shown(recording, first), *map(str, more)]
    else:
        before = way.alone[: way.alone.index(way.site)] if way.site in way.alone else ()
        lines = [*map(str, before[1 - _LINES :]), at]
    when = f"{way.since} only" if way.since else "Only"
    ran = f"{', '.join(lines[:-1])}{' and ' * (len(lines) > 1)}{lines[-1]}"
    handled = "".join(
        f" There it handled {name}, raised at {_shown(recording, raised)}."
        for raised, name in _raised(recording, way).items()
    )
    passed = way.header or way.left
    others = f" The others ran {_shown(recording, passed)} and then not this." if passed is not None else ""
    return f"{when} {phrases.ranks(ranks)} ran {ran}.{others}{inside}{handled}"


def _raised(recording: Recording, way: Departure) -> dict[Site, str]:
    """Where the exception was raised, the handler of which the rank ran, and its type."""
    if way.word != "except":
        return {}
    first, last = handler_at(recording.sources.get(way.site.file, ""), way.site.line) or (way.site.line, way.site.line)
    found = [
        event
        for event in handled(recording, way.rank)
        if event.site.file == way.site.file and first <= event.site.line <= last
    ]
    return {Site(one.raised.file, one.raised.line, one.raised.function): one.exception for one in found[-1:]}


def _shown(recording: Recording, site: Site) -> str:
    """A line with its text."""
    lines = recording.sources.get(site.file, "").splitlines()
    text = lines[site.line - 1].strip() if 0 < site.line <= len(lines) else ""
    return f"{site} (`{shortened(text, _SHORT)}`)" if text else str(site)
