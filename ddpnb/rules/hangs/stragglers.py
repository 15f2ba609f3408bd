"""DDP315: ranks that others wait for, while nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ddpnb.recording import phrases
from ddpnb.recording.events.runs import Compilation
from ddpnb.recording.facts.compilations import WARM_UP, described
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.standings import Standing, compiles
from ddpnb.recording.facts.stops import Stop
from ddpnb.recording.findings import FindingType
from ddpnb.recording.rank_state import RankState
from ddpnb.rules.hangs import blocked
from ddpnb.rules.hangs.stack_lines import caveats
from ddpnb.rules.hangs.table import hang
from ddpnb.rules.rule import ERROR, Draft, each, family, say, waited_for

STRAGGLER = FindingType("DDP315", "straggler", severity="note")
LATE = "This is no error yet: find out what the late rank does that the others do not."
LATE_COMPILER = f"This is no error, unless the time-out of the group fires first. {WARM_UP}"


@family(STRAGGLER, after=(ERROR,), needs=("calls",))
def straggler(snap: Snapshot) -> Iterable[Draft]:
    """Others wait for ranks that compute, or that are blocked elsewhere and may continue."""
    standings = snap.standings
    away = {rank for rank, one in standings.items() if one.state is RankState.COMPUTING or one.elsewhere}
    late = sorted({rank for wait in snap.waits.values() for rank in wait.missing} & away)
    if not late:
        return
    waiting = sorted(rank for rank, wait in snap.waits.items() if not wait.missing.isdisjoint(late))
    compiling = all(standings[rank].record.compiling is not None for rank in late)
    compiles_now = f", where {phrases.verb(late, 'it compiles', 'they compile')}" if compiling else ""
    yield Draft(
        f"{_are_late(standings, late)}{compiles_now}{waited_for(late, waiting)}.",
        late,
        LATE_COMPILER if compiling else LATE,
        snap.at((*late, *waiting)),
        waiting,
        evidence=(
            *each(late, lambda rank: _doing(standings[rank], snap.recording.taken_ns)),
            *_compiled(snap, late, waiting),
        ),
        collective=standings[waiting[0]].call,
    )


def _are_late(standings: Mapping[int, Standing], ranks: Sequence[int]) -> str:
    return say("{who} [is a straggler|are stragglers]{at}", ranks, at=phrases.at(standings[ranks[0]].site))


def _doing(one: Standing, taken_ns: int) -> str:
    if one.record.compiling is not None:
        return f"Rank {one.rank} {described(one.record.compiling, taken_ns)}"
    if waits_on := blocked.awaits_key(one):  # its process may compute beside that
        return f"Rank {one.rank} waits for {waits_on}."
    return f"Rank {one.rank} is {'computing' if one.state is RankState.COMPUTING else blocked.outside([one])}."


def _compiled(snap: Snapshot, late: Sequence[int], waiting: Sequence[int]) -> list[str]:
    """How the first of the waiting ranks compiled what a late one is compiling."""
    now = next((one for rank in late if (one := snap.ranks[rank].compiling) is not None), None)
    if now is None:
        return []
    same = ((rank, one) for rank in waiting for one in snap.ranks[rank].events(Compilation) if one.site == now.site)
    done = {rank: one for rank, one in same if one.part == now.part and one.number <= now.number}
    return [f"Rank {rank} {described(one)}" for rank, one in sorted(done.items())[:1]] or [
        f"{phrases.ranks(waiting, True)} did not compile it."
    ]


@hang(STRAGGLER, failure=False, after=(ERROR,), needs=("stacks",))
def straggler_by_stacks(snap: Snapshot, stop: Stop) -> Draft:
    """Others wait, as their stacks show, and these ranks move."""
    standings, moving, waiting = stop.standings, stop.gone, stop.waiting
    first = standings[waiting[0]]
    inside = [rank for rank in moving if compiles(standings[rank].record)]
    return Draft(
        f"{_are_late(standings, moving)}; "
        + say(
            "{ranks} [waits|wait] in {call}{at}.",
            waiting,
            ranks=waiting,
            call=first.function,
            at=phrases.at(first.site),
        ),
        moving,
        LATE_COMPILER if len(inside) == len(moving) else LATE,
        waiting=waiting,
        evidence=(
            *each(
                moving,
                lambda rank: (
                    f"Rank {rank} "
                    f"{'is inside of torch.compile' if rank in inside else 'still moves'}{phrases.at(standings[rank].site)}."
                ),
            ),
            *caveats(snap, stop),
        ),
        certainty="likely",
    )
