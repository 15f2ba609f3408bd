"""DDP306: a cycle over several groups: each waits in one for a rank that waits in another."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ddpnb.recording import phrases
from ddpnb.recording.calls import Call
from ddpnb.recording.facts.cycles import ranks_in_a_cycle
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stops import Stop, Waits
from ddpnb.recording.findings import FindingType
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.rules.hangs.collective_missing import call_lines
from ddpnb.rules.hangs.table import hang
from ddpnb.rules.rule import ERROR, Draft, family, in_calls

GROUP_ORDER = FindingType("DDP306", "group-order", separate_calls=True, ways_part=True)
_SAME_ORDER = "Call the collectives of different groups in the same order on all ranks."


@hang(GROUP_ORDER, needs=("calls",))
def group_order(snap: Snapshot, stop: Stop) -> Draft:
    """The ranks of a cycle, each in a call of another group, or with calls of several in the queue of its device."""
    calls, queued = stop.calls, stop.waits is Waits.QUEUE
    cycle = stop.gone if queued else ranks_in_a_cycle(stop.waits_for, calls) or tuple(sorted(calls))
    changed = () if queued else _changed(snap.recording, stop, cycle)
    history = (
        f"{phrases.ranks(changed, True)} made {phrases.verb(changed, 'its', 'their')} calls in another order than before; "
        "the others did not."
    )
    culprits = changed or cycle
    return Draft(
        f"{phrases.ranks(cycle, True)} wait for each other in different groups.",
        culprits,
        f"{_SAME_ORDER} A call that one rank skips changes its order too.",
        waiting=tuple(sorted(calls.keys() - set(culprits))),
        evidence=(*call_lines(stop), *([history] if changed else [])),
        collective=calls[cycle[0]],
        certainty="likely" if changed or queued or _partial(snap.recording, calls) else "proven",
    )


def _partial(recording: Recording, ranks: Iterable[int]) -> bool:
    """Whether some of a rank's calls may be missing between those that are known."""
    return any(recording.ranks[rank].partial for rank in ranks)


def _changed(recording: Recording, stop: Stop, cycle: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks of a cycle that came to their calls in another order than before, where the others did not."""
    usual = {rank: _usual(recording.ranks[rank], stop.calls[rank]) for rank in cycle}
    changed = tuple(rank for rank in cycle if usual[rank] is False)
    return changed if None not in usual.values() and len(changed) < len(cycle) else ()


def _usual(record: RankRecord, call: Call) -> bool | None:
    """Whether a rank came to a call from the same call as before, by operation and group; None: it was never there before."""
    kinds = [(own.op, own.group.key) for own in record.calls if own.number <= call.number]
    pairs = list(pairwise(kinds))
    earlier = [before for before, now in pairs[:-1] if now == kinds[-1]]
    return pairs[-1][0] in earlier if earlier else None


@family(GROUP_ORDER, after=(ERROR,), needs=("calls",))
def in_different_groups(snap: Snapshot) -> Iterable[Draft]:
    """Ranks of a report wait in different groups, and of one at least the members are not known."""
    standings = snap.standings
    calls = {r: one.call for r, one in sorted(standings.items()) if one.state is RankState.WAITING and one.call}
    keys = {call.group.key for call in calls.values()}
    observed = set(snap.recording.report.observed) if snap.recording.report is not None else set[str]()
    if len(keys) < 2 or observed.isdisjoint(keys):
        return
    ranks = tuple(calls)
    yield Draft(
        f"{phrases.ranks(ranks, True)} were blocked in different groups. Probably they wait for each other.",
        ranks,
        _SAME_ORDER,
        snap.at(ranks),
        evidence=in_calls(calls, standings, "was"),
        collective=calls[ranks[0]],
        certainty="likely",
    )
