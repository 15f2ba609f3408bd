"""The numbered checkpoints that each rank passed."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.events.runs import Checkpoint
from ddpnb.recording.names import given_name
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.split import by_value


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
