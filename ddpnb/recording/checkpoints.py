"""The numbered checkpoints that each rank passed, and the first one that not all ranks passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.events.runs import Checkpoint
from ddpnb.recording.names import given_name
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.split import by_value

_REFERENCES = 16  # kinds of ranks whose order of checkpoints is compared with that of all others
_Visits = dict[tuple[str, int], int]  # by file and line: how often a rank passed the checkpoint there


@dataclass(frozen=True, slots=True)
class NotPassed:
    """A checkpoint that some ranks passed and others did not; ``checkpoint``: as the furthest rank recorded it."""

    checkpoint: Checkpoint
    passed: tuple[int, ...]
    missing: tuple[int, ...]


def passed(record: RankRecord) -> tuple[Checkpoint, ...]:
    """The checkpoints of a rank, in the order of their numbers: of very many, the first and the last ones."""
    found = [one for one in record.events(Checkpoint) if one.number > 0]
    return tuple(sorted(found, key=lambda one: one.number))


def last(record: RankRecord) -> Checkpoint | None:
    """The last checkpoint that a rank passed."""
    return max(record.events(Checkpoint), key=lambda one: one.number, default=None)


def checkpoints(recording: Recording) -> dict[int, tuple[Checkpoint, ...]]:
    """Of each rank that is recorded, the checkpoints that it passed, in order (``passed``).

    Each has its number, its name, its site and the time (``began_ns``).
    """
    return {rank: passed(record) for rank, record in sorted(recording.ranks.items())}


def first_not_passed_by_all(recording: Recording) -> NotPassed | None:
    """The first checkpoint that some ranks passed and others have not reached; None when there is none.

    The same checkpoint on two ranks is the same visit of the same line: its number may differ, where only some ranks pass
    another one before it, and so may its name. One that a rank left out (``if rank == 0:``) and passed a later one counts as
    reached. Of very many it is the first one that is still known.
    """
    by_rank = checkpoints(recording)
    visits = {rank: _visits(those) for rank, those in by_rank.items()}
    kinds: dict[frozenset[tuple[tuple[str, int], int]], int] = {}
    for rank, counts in visits.items():
        kinds.setdefault(frozenset(counts.items()), rank)
    if len(kinds) < 2:
        return None
    furthest = sorted(kinds.values(), key=lambda rank: (-_last_number(by_rank[rank]), rank))
    for reference in furthest[:_REFERENCES]:
        mine = by_rank[reference]
        reached = min(_reached(mine, visits[rank]) for rank in kinds.values())
        if reached < len(mine):
            one = mine[reached]
            ranks = [rank for rank in by_rank if _reached(mine, visits[rank]) > reached]
            return NotPassed(one, tuple(ranks), tuple(rank for rank in by_rank if rank not in set(ranks)))
    return None


def _visits(those: Sequence[Checkpoint]) -> _Visits:
    counts: _Visits = {}
    for one in those:
        place = one.site.file, one.site.line
        counts[place] = max(counts.get(place, 0), one.visit)
    return counts


def _last_number(those: Sequence[Checkpoint]) -> int:
    return those[-1].number if those else 0


def _reached(those: Sequence[Checkpoint], visits: _Visits) -> int:
    """How many of these checkpoints a rank with these visits has reached."""
    return next(
        (place + 1 for place in reversed(range(len(those))) if _passed(those[place], visits)),
        0,
    )


def _passed(one: Checkpoint, visits: _Visits) -> bool:
    return visits.get((one.site.file, one.site.line), 0) >= one.visit


# -- in words


def named(one: Checkpoint) -> str:
    """``checkpoint 3 (Trainer ready)``."""
    return f"checkpoint {one.number} ({given_name(one.name)})" if one.name else f"checkpoint {one.number}"


def with_line(one: Checkpoint) -> str:
    """``checkpoint 3 (Trainer ready), line 41``."""
    return f"{named(one)}, line {one.site.line}" if one.site.line else named(one)


def last_passed(records: Mapping[int, RankRecord]) -> str:
    """Which ranks stopped after which checkpoint, in a sentence; empty when none passed any.

    ``Rank 1 passed checkpoint 3 (Trainer ready) last, at train.py:41; ranks 0 and 2 passed checkpoint 4 (first batch) ...``
    """
    passed = {rank: last(record) for rank, record in sorted(records.items())}
    alike = by_value((rank, one and (one.number, one.name, one.site)) for rank, one in passed.items())
    sides = {passed[ranks[0]]: ranks for ranks in alike.values()}
    if not any(sides):
        return ""
    ordered = sorted(sides.items(), key=lambda side: (side[0].number if side[0] is not None else 0, side[1]))
    parts: list[str] = []
    for latest, ranks in ordered[: phrases.SIDES]:
        who = phrases.ranks(ranks, not parts)
        if latest is None:
            parts.append(f"{who} passed no checkpoint")
        else:
            place = f", at {latest.site}" if latest.site != NO_SITE else ""
            parts.append(f"{who} passed {named(latest)} last{place}")
    if len(ordered) > len(parts):
        parts.append("the other ranks passed others last")
    return f"{'; '.join(parts)}."
