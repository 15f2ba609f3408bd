"""DDP308: ranks that run fewer iterations of a loop than the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE, Call
from ddpnb.recording.collectives import Collective
from ddpnb.recording.facts.departures import Departure, calls_like
from ddpnb.recording.facts.loading import Loop, views
from ddpnb.recording.facts.paths.partings import parting
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stacks import in_wrapper
from ddpnb.recording.facts.stops import Stop
from ddpnb.recording.findings import FindingType
from ddpnb.recording.parting import Parting
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.rules.data.even_batches import measures
from ddpnb.rules.hangs.collective_missing import ended_lines
from ddpnb.rules.hangs.table import hang
from ddpnb.rules.rule import Draft, title


# A rank that left a loop is in other micro-batches than the others from there on.
@hang(FindingType("DDP308", "uneven-iterations", supersedes=("DDP408",), ways_part=True), needs=("calls",))
def uneven_iterations(snap: Snapshot, stop: Stop) -> Draft | None:
    """A loop of which some ranks ran fewer iterations."""
    if stop.left is None:
        return None
    return _of_calls(snap, stop.collective, stop.left) if stop.collective else _ended(snap, stop, stop.left)


def _of_calls(snap: Snapshot, collective: Collective, left: Departure) -> Draft:
    """Of ranks that are in another call, after the loop."""
    gone = left.ranks
    (inside,) = (side for side in collective.sides if side != gone)
    mine, theirs = collective.calls[gone[0]], collective.calls[inside[0]]
    record, other = snap.ranks[gone[0]], snap.ranks[inside[0]]
    made = phrases.calls(record, _from_line(record, theirs))
    is_ = phrases.verb(gone, "is", "are")
    return _draft(
        snap,
        (gone, inside),
        made,
        theirs,
        at={rank: collective.calls[rank].site for rank in (*gone, *inside)},
        evidence=(
            f"{phrases.ranks(inside, True)} {phrases.verb(inside, 'is', 'are')} in {phrases.in_call(theirs)}{phrases.at(theirs.site)}, "
            f"call number {_from_line(other, theirs)}{' or later' if other.forgotten else ''} at that line.",
            f"{phrases.ranks(gone, True)} made {made} at that line and {is_} in {phrases.in_call(mine)}{phrases.at(mine.site)}.",
        ),
    )


def _from_line(record: RankRecord, call: Call) -> int:
    return sum(1 for one in record.calls if one.site == call.site)


def _ended(snap: Snapshot, stop: Stop, left: Departure) -> Draft:
    """Of ranks that ended, after the loop."""
    call = stop.calls[stop.first]
    counts = {rank: calls_like(snap.ranks[rank], call) for rank in stop.gone}
    return _draft(
        snap,
        (stop.gone, stop.waiting),
        _counted(snap.recording, counts),
        call,
        evidence=ended_lines(snap.recording, stop),
        proven=left.counted,
    )


def _counted(recording: Recording, made: Mapping[int, int]) -> str:
    """How many calls each rank made from one line."""
    words = {rank: phrases.calls(recording.ranks[rank], count) for rank, count in made.items()}
    sides = [[rank for rank in words if words[rank] == text] for text in dict.fromkeys(words.values())]
    return words[sides[0][0]] if len(sides) == 1 else phrases.by_side(sides, words.__getitem__)


def _draft(
    snap: Snapshot,
    sides: tuple[tuple[int, ...], tuple[int, ...]],
    made: str,
    call: Call,
    *,
    proven: bool = False,
    **more: object,
) -> Draft:
    """The Draft for ranks that left a loop after so many calls, and those that are blocked in one more."""
    gone, inside = sides
    known = parting(snap.recording, gone, inside)
    others = f"{phrases.ranks(inside)} {phrases.verb(inside, 'is', 'are')} in one more {call.op}"
    return Draft(
        title(
            f"{phrases.ranks(gone, True)} left the loop after {made} at {call.site}; {others}.",
            f"{phrases.ranks(gone, True)} left the loop after {made}; {others}.",
            f"{phrases.ranks(gone, True)} left the loop earlier; {others}.",
        ),
        gone,
        _remedy(snap, sides, known),
        waiting=inside,
        collective=call,
        certainty="proven" if proven or (known is not None and known.left_loop(gone)) else "likely",
        **more,  # type: ignore[arg-type]
    )


def _remedy(snap: Snapshot, sides: tuple[tuple[int, ...], tuple[int, ...]], known: Parting | None) -> str:
    """By what was recorded: how the loop was left, what it read, whose call the others are in, and how they train."""
    if known is not None and (known.kind != "loop" or _is_while(snap.recording, known)):
        return (
            "Leave the loop on all ranks together: all_reduce the condition in each iteration (ReduceOp.MAX), and break "
            "where it holds on any rank."
        )
    gone, inside = sides
    loops = _loops(snap.recording, (*gone, *inside), known)
    site = next((loop.site for loop in loops.values()), known.site if known is not None else NO_SITE)
    joins = any(in_wrapper(snap.standings[rank]) for rank in inside if rank in snap.standings)
    return f"Run the same number of iterations on all ranks: {measures(snap.recording, loops, site, joins=joins)}."


def _is_while(recording: Recording, known: Parting) -> bool:
    """Whether a condition decides on each iteration: how many there are is not known before."""
    lines = recording.sources.get(known.site.file, "").splitlines()[known.site.line - 1 : known.site.line]
    return any(line.lstrip().startswith("while ") for line in lines)


def _loops(recording: Recording, ranks: Sequence[int], known: Parting | None) -> dict[int, Loop]:
    """The loops over loaders that these ranks were in last, if each was, all at one line, and that is where they part."""
    own = views(recording)
    last = {rank: own[rank].loops[-1] for rank in ranks if own[rank].loops}
    lines = {(loop.site.file, loop.site.line) for loop in last.values()}
    there = known is None or lines == {(known.site.file, known.site.line)}
    return last if len(last) == len(ranks) and len(lines) == 1 and there else {}
