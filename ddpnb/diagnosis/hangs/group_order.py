"""DDP306: a cycle over several groups; DDP301 where a rank of it skipped a call."""

from __future__ import annotations

from itertools import pairwise

from ddpnb.diagnosis import hints
from ddpnb.diagnosis.execution.departures import departures
from ddpnb.diagnosis.hangs.call_order import may_come_again
from ddpnb.diagnosis.hangs.cycles import ranks_in_a_cycle
from ddpnb.diagnosis.hangs.rank_state import Standing
from ddpnb.diagnosis.hangs.skipped_call import COLLECTIVE_MISSING
from ddpnb.diagnosis.hangs.wait_for_graph import Wait
from ddpnb.diagnosis.places import where
from ddpnb.model import phrases
from ddpnb.model.calls import Call, Site
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.source.paths import parting, path_to

GROUP_ORDER = FindingType("DDP306", "group-order", separate_calls=True, ways_part=True)
_FEW = 8  # ranks with an evidence line of their own


def explain(
    recording: Recording, standings: dict[int, Standing], waits: dict[int, Wait], calls: dict[int, Call]
) -> Finding | None:
    """A cycle over several groups: each waits in one for a rank that waits in another."""
    if len({call.group.key for call in calls.values()}) < 2:
        return None
    skipped = (
        _left_out(recording, waits, calls)
        or _skipped_in_cycle(recording, waits, calls)
        or _skipped_by_lines(recording, waits, calls)
    )
    # From another branch it may still reach the call: only the cycle was observed.
    if skipped is not None and not _in_another_branch(recording, calls, *skipped):
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


def _left_out(recording: Recording, waits: dict[int, Wait], calls: dict[int, Call]) -> tuple[int, int] | None:
    """(a rank that skipped a call of its usual sequence, a rank that waits in that call).

    Until now the rank made this call between its previous call and the one that it is in.
    """
    rounds: dict[int, list[tuple[Site, Site]]] = {}
    usual: dict[int, set[tuple[Site, Site]]] = {}
    asked: set[tuple[frozenset[int], Site]] = set()  # ranks that wait for the same at the same line get one answer
    for rank in sorted(calls):
        missing, left_out = waits[rank].missing, calls[rank].site
        if (missing, left_out) in asked:
            continue
        asked.add((missing, left_out))
        for other in sorted(missing & calls.keys()):
            if other not in rounds:
                sites = [call.site for call in recording.ranks[other].calls if call.number <= calls[other].number]
                rounds[other] = list(pairwise(sites))
                usual[other] = set(rounds[other][:-1])
            if not rounds[other] or left_out == calls[other].site:
                continue
            before, now = rounds[other][-1]
            known = usual[other]
            if (before, now) not in known and (before, left_out) in known and (left_out, now) in known:
                return other, rank
    return None


def _in_another_branch(recording: Recording, calls: dict[int, Call], culprit: int, rank: int) -> bool:
    mine, theirs = (path_to(recording.ranks[r], calls[r]) for r in (culprit, rank))
    return parting(recording, mine, theirs).relation == "exclusive"


def _skipped_in_cycle(recording: Recording, waits: dict[int, Wait], calls: dict[int, Call]) -> tuple[int, int] | None:
    """(a rank that has passed a call without making it, a rank that waits in that call)."""
    paths = {rank: path_to(recording.ranks[rank], call) for rank, call in calls.items()}
    asked: set[tuple[frozenset[int], str, tuple[Site, ...]]] = set()
    passed: dict[tuple[tuple[Site, ...], tuple[Site, ...]], bool] = {}
    for rank in sorted(calls):
        missing, key = waits[rank].missing, calls[rank].group.key
        if (missing, key, paths[rank]) in asked:
            continue
        asked.add((missing, key, paths[rank]))
        for other in sorted(missing & calls.keys()):
            if calls[other].group.key == key:
                continue
            both = paths[other], paths[rank]
            if both not in passed:
                passed[both] = _passed(recording, *both)
            if passed[both]:
                return other, rank
    return None


def _skipped_by_lines(recording: Recording, waits: dict[int, Wait], calls: dict[int, Call]) -> tuple[int, int] | None:
    """(a rank that executed its way past a call, a rank that waits in that call and did not pass the first one's)."""
    asked: set[tuple[frozenset[int], Site]] = set()
    for rank in sorted(calls):
        others = frozenset(waits[rank].missing & calls.keys())
        if (others, calls[rank].site) in asked:
            continue
        asked.add((others, calls[rank].site))
        for other in sorted(others)[:_FEW]:
            ways = departures(recording, (other,), (rank,), calls[rank])
            back = departures(recording, (rank,), (other,), calls[other])
            if any(way.skips for way in ways) and not any(way.skips for way in back):
                return other, rank
    return None


def _passed(recording: Recording, mine: tuple[Site, ...], theirs: tuple[Site, ...]) -> bool:
    """Whether a rank has passed the call to which the other path leads, and does not reach it in a later iteration."""
    apart = parting(recording, mine, theirs)
    if apart.relation != "sequence" or not apart.one_rest or apart.one.line <= apart.other.line:
        return False
    return not may_come_again(recording, mine, theirs)
