"""How often each rank called each collective of a scan, according to a run's Recording."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.recording import Recording
from ddpnb.studies.scan import vocabulary as words
from ddpnb.studies.scan.sites import CollectiveSite

Place = tuple[str, int]  # a file and a line


@dataclass(frozen=True, slots=True)
class Counted:
    """How often each rank called one call site."""

    file: str
    line: int
    op: str
    counts: tuple[tuple[int, int], ...]  # (rank, how often); ranks that are not concerned are left out
    unequal: bool
    sites: tuple[CollectiveSite, ...] = ()  # empty: not in the source (a call of a wrapper)


def joined(
    sites: Iterable[CollectiveSite],
    counts: Mapping[int, Mapping[Place, int]],
    members: Mapping[Place, Collection[int]] | None = None,
) -> list[Counted]:
    """The scan's collectives with how often each rank made them; unequal ones first.

    Args:
        sites: of a scan.
        counts: for each rank, the number of its calls at each place.
        members: the ranks of the groups that were used at a place, if not all.
    """
    concerned = {place: set(ranks) for place, ranks in (members or {}).items()}
    seen: dict[Place, dict[int, int]] = {}
    for rank, places in counts.items():
        for place, count in places.items():
            seen.setdefault(place, {})[rank] = count
    by_place: dict[Place, list[CollectiveSite]] = {}
    for site in sites:
        by_place.setdefault((site.site.file, site.site.line), []).append(site)
    rows: list[Counted] = []
    for (file, line), own in by_place.items():
        last = max(site.last_line for site in own) or line
        unseen = all(site.op in words.SETUP for site in own)  # these do not pass the door
        here = [pair for pair in seen if line <= pair[1] <= last and _same_file(pair[0], file)]
        total: dict[int, int] = {}
        ranks: set[int] = set()
        for pair in here:
            ranks |= concerned.get(pair, set(counts))
            for rank, count in seen.pop(pair).items():
                total[rank] = total.get(rank, 0) + count
        if here or not unseen:
            rows.append(_counted(file, line, own, total, ranks or set(counts)))
    rows += [_counted(pair[0], pair[1], [], row, concerned.get(pair, set(counts))) for pair, row in seen.items()]
    return sorted(rows, key=lambda row: (not row.unequal, not row.sites, row.file, row.line))


def _counted(file: str, line: int, sites: list[CollectiveSite], row: dict[int, int], ranks: set[int]) -> Counted:
    counts = tuple((rank, row.get(rank, 0)) for rank in sorted(ranks | set(row)))
    ops = sorted({site.op for site in sites})
    free = all(op in words.P2P for op in ops) if ops else False
    # A root and the others may issue one collective from two lines.
    matched = any(condition.matched for site in sites for condition in site.conditions)
    unequal = not free and not matched and len({count for _, count in counts}) > 1
    return Counted(file, line, ", ".join(ops), counts, unequal, tuple(sites))


def _same_file(path: str, other: str) -> bool:
    return path == other or path.endswith(f"/{other}") or other.endswith(f"/{path}")


@dataclass(frozen=True, slots=True)
class Tally:
    """The calls of a Recording, counted by rank and place."""

    counts: dict[int, dict[Place, int]]
    members: dict[Place, set[int]]  # the ranks of the groups that were used at a place
    whole: bool  # False: only the end of the run is recorded, and counted where all ranks have it


def tally(recording: Recording) -> Tally:
    """Count the calls of every rank.

    A rank keeps its last calls only. Where some are forgotten, those of a group are counted from the
    first that all its ranks still know; what cannot be compared is left out.
    """
    counts: dict[int, dict[Place, int]] = {rank: {} for rank in recording.ranks}
    members: dict[Place, set[int]] = {}
    since: dict[str, int] = {}
    groups = {call.group.key: call.group for record in recording.ranks.values() for call in record.calls}
    for key, group in groups.items():
        for rank in group.ranks:
            record = recording.ranks.get(rank)
            if record is not None and record.forgotten:
                known = [call.seq for call in record.calls if call.group.key == key and call.seq]
                since[key] = max(since.get(key, 0), min(known, default=1 << 62))
    whole = not any(record.forgotten for record in recording.ranks.values())
    seen: set[tuple[Place, str]] = set()
    for rank, record in recording.ranks.items():
        for call in record.calls:
            if call.site == NO_SITE or (call.seq == 0 and not whole) or call.seq < since.get(call.group.key, 0):
                continue
            place = (call.site.file, call.site.line)
            counts[rank][place] = counts[rank].get(place, 0) + 1
            if (place, call.group.key) not in seen:
                seen.add((place, call.group.key))
                members.setdefault(place, set()).update(recording.ranks.keys() & call.group.ranks)
    return Tally(counts, members, whole)
