"""DDP306: a cycle over several groups; DDP301 where a rank of it skipped a call."""

from __future__ import annotations

from itertools import pairwise

from ddpnb.facts import hints
from ddpnb.facts.cycles import ranks_in_a_cycle
from ddpnb.facts.paths.partings import parting
from ddpnb.facts.places import where
from ddpnb.facts.standings import Standing
from ddpnb.facts.waits import Wait
from ddpnb.model import phrases
from ddpnb.model.calls import Call, Site
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.rules.hangs.skipped_call import COLLECTIVE_MISSING
from ddpnb.source.paths import path_to

GROUP_ORDER = FindingType("DDP306", "group-order", separate_calls=True, ways_part=True)
_FEW = 8  # ranks with an evidence line of their own


def explain(
    recording: Recording, standings: dict[int, Standing], waits: dict[int, Wait], calls: dict[int, Call]
) -> Finding | None:
    """A cycle over several groups: each waits in one for a rank that waits in another."""
    if len({call.group.key for call in calls.values()}) < 2:
        return None
    skipped = _skipped(recording, waits, calls)
    if skipped is not None:
        culprit, rank = skipped
        call = calls[rank]
        culprits = tuple(
            sorted(r for r in waits[rank].missing if calls.get(r) and calls[r].site == calls[culprit].site)
        )
        waiting = tuple(sorted(calls.keys() - set(culprits)))
        inside = [r for r in waiting if calls[r].group.key == call.group.key and calls[r].seq == call.seq]
        return Finding(
            COLLECTIVE_MISSING,
            f"{phrases.ranks(culprits, True)} did not call the {call.op} that {phrases.ranks(inside)} "
            f"{phrases.verb(inside, 'is', 'are')} blocked in{phrases.at(call.site)}: "
            f"{phrases.verb(culprits, 'it is', 'they are')} in {calls[culprit].op}{phrases.at(calls[culprit].site)}.",
            culprits,
            waiting,
            call,
            where(standings, [*culprits, *waiting]),
            _places(standings, calls),
            "Call every collective of a group on all of its members.",
            certainty="likely",
            hint=hints.deciding_branch(recording, path_to(recording.ranks[rank], call)),
        )
    cycle = ranks_in_a_cycle(waits, calls) or tuple(sorted(calls))
    usual = {rank: _usual(recording.ranks[rank], calls[rank]) for rank in cycle}
    changed = tuple(rank for rank in cycle if usual[rank] is False)
    known = None not in usual.values() and len(changed) < len(cycle)
    return cycle_of_groups(standings, calls, cycle, changed if known else ())


def _usual(record: RankRecord, call: Call) -> bool | None:
    """Whether a rank came to a call from the same call as before, by operation and group; None: it was never there before."""
    kinds = [(own.op, own.group.key) for own in record.calls if own.number <= call.number]
    pairs = list(pairwise(kinds))
    earlier = [before for before, now in pairs[:-1] if now == kinds[-1]]
    return pairs[-1][0] in earlier if earlier else None


def cycle_of_groups(
    standings: dict[int, Standing], calls: dict[int, Call], cycle: tuple[int, ...], changed: tuple[int, ...] = ()
) -> Finding:
    """DDP306: the ranks of a cycle, each in a call of another group.

    ``changed``: those of them that came to their calls in another order than before, where the others did not.
    """
    culprits = changed or cycle
    waiting = tuple(sorted(calls.keys() - set(culprits)))
    history = (
        f"{phrases.ranks(changed, True)} made {phrases.verb(changed, 'its', 'their')} calls in another order than before; "
        "the others did not."
    )
    return Finding(
        GROUP_ORDER,
        f"{phrases.ranks(cycle, True)} wait for each other in different groups: "
        + ", ".join(f"{rank} in {call.title} of {call.group}" for rank in cycle[:6] for call in [calls[rank]])
        + ".",
        culprits,
        waiting,
        calls[cycle[0]],
        where(standings, [*culprits, *waiting]),
        (*_places(standings, calls), *([history] if changed else [])),
        "Call the collectives of different groups in the same order on all ranks. A call that one rank skips changes its "
        "order too.",
        certainty="likely" if changed else "proven",
    )


def _places(standings: dict[int, Standing], calls: dict[int, Call]) -> tuple[str, ...]:
    """Where each rank is; at a line to which several callers lead, with the line of the caller."""
    callers: dict[Site, set[str]] = {}
    for call in calls.values():
        callers.setdefault(call.site, set()).add(call.site.via)
    return tuple(
        f"Rank {rank} is in {phrases.in_call(call)}{phrases.at(standings[rank].site)}"
        + (f", called at {call.site.via}." if call.site.via and len(callers[call.site]) > 1 else ".")
        for rank, call in sorted(calls.items())[:_FEW]
    )


def _skipped(recording: Recording, waits: dict[int, Wait], calls: dict[int, Call]) -> tuple[int, int] | None:
    """(a rank that went past a call, a rank that waits in that call and did not go past the first one's)."""
    asked: set[tuple[frozenset[int], Site]] = set()  # ranks that wait for the same at the same line get one answer
    for rank in sorted(calls):
        others = frozenset(waits[rank].missing & calls.keys())
        if (others, calls[rank].site) in asked:
            continue
        asked.add((others, calls[rank].site))
        for other in sorted(others)[:_FEW]:
            known = parting(recording, (other,), (rank,))
            mine, theirs = (known.way_of((one,)) for one in (other, rank)) if known is not None else (None, None)
            if mine is not None and theirs is not None and theirs.calls and not mine.calls:
                return other, rank
    return None
