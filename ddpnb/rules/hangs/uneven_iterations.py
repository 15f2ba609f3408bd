"""DDP308: ranks that run fewer iterations of a loop than the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ddpnb.facts.departures import Departure, calls_like
from ddpnb.facts.paths.partings import parting
from ddpnb.facts.snapshot import Snapshot
from ddpnb.facts.stops import Stop
from ddpnb.model import phrases
from ddpnb.model.calls import Call
from ddpnb.model.events.data import LoaderSeen
from ddpnb.model.parting import Parting
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.rules.hangs.collective_missing import ended_lines, how_ended, places
from ddpnb.rules.hangs.table import stops_of
from ddpnb.rules.rule import Draft, rule


# A rank that left a loop is in other micro-batches than the others from there on.
@rule("DDP308", "uneven-iterations", supersedes=("DDP408",), ways_part=True, failure=True, needs=("calls",))
def uneven_iterations(snap: Snapshot) -> Iterable[Draft]:
    """A loop of which some ranks ran fewer iterations."""
    for stop in stops_of(snap, "DDP308"):
        if stop.left is not None:
            yield (
                _of_calls(snap.recording, stop, stop.left)
                if stop.collective
                else _ended(snap.recording, stop, stop.left)
            )


def _of_calls(recording: Recording, stop: Stop, left: Departure) -> Draft:
    """Of ranks that are in another call, after the loop."""
    collective, gone = stop.collective, left.ranks
    assert collective is not None
    (inside,) = (side for side in collective.sides if side != gone)
    mine, theirs = collective.calls[gone[0]], collective.calls[inside[0]]
    record, other = recording.ranks[gone[0]], recording.ranks[inside[0]]
    made = phrases.calls(record, _from_line(record, theirs))
    is_ = phrases.verb(gone, "is", "are")
    return _draft(
        recording,
        stop,
        (gone, inside),
        f"{is_} in {mine.op}{phrases.at(mine.site)} after {made} at {theirs.site}",
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


def _ended(recording: Recording, stop: Stop, left: Departure) -> Draft:
    """Of ranks that ended, after the loop."""
    call = stop.calls[stop.first]
    counts = {rank: calls_like(recording.ranks[rank], call) for rank in stop.gone}
    return _draft(
        recording,
        stop,
        (stop.gone, stop.waiting),
        f"{how_ended(recording, stop.gone)} after {_counted(recording, counts)} at {call.site}",
        call,
        at=places(stop),
        evidence=ended_lines(recording, stop),
        proven=left.counted,
    )


def _counted(recording: Recording, made: Mapping[int, int]) -> str:
    """How many calls each rank made from one line."""
    words = {rank: phrases.calls(recording.ranks[rank], count) for rank, count in made.items()}
    sides = [[rank for rank in words if words[rank] == text] for text in dict.fromkeys(words.values())]
    return words[sides[0][0]] if len(sides) == 1 else f"{phrases.by_side(sides, words.__getitem__)},"


def _draft(
    recording: Recording,
    stop: Stop,
    sides: tuple[tuple[int, ...], tuple[int, ...]],
    did: str,
    call: Call,
    *,
    proven: bool = False,
    **more: object,
) -> Draft:
    """The Draft for ranks that left a loop, and those that are blocked in one more call."""
    gone, inside = sides
    known = parting(recording, gone, inside)
    return Draft(
        f"{phrases.ranks(gone, True)} {did}; {phrases.ranks(inside)} {phrases.verb(inside, 'is', 'are')} blocked in one more "
        f"{call.op}{phrases.at(call.site)}.",
        gone,
        _remedy([recording.ranks[rank] for rank in (*gone, *inside)], known),
        waiting=inside,
        collective=call,
        certainty="proven" if proven or (known is not None and known.left_loop(gone)) else "likely",
        stop=stop,
        **more,  # type: ignore[arg-type]
    )


def _remedy(records: Sequence[RankRecord], known: Parting | None) -> str:
    """By what was recorded: how the loop was left, what it read, whether a model is wrapped."""
    if known is not None and known.kind != "loop":
        return (
            "Leave the loop on all ranks together: all_reduce the condition in each iteration (ReduceOp.MAX), and break "
            "where it holds on any rank."
        )
    kinds = {loader.kind for record in records for loader in record.events(LoaderSeen)}
    measures = ["DistributedSampler, which gives all ranks equally many samples"] if "map" in kinds else []
    measures.append("the minimum length over all ranks (all_reduce it with ReduceOp.MIN before the loop)")
    if any(model.wrapper == "DistributedDataParallel" for record in records for model in record.models):
        measures.append("the Join context manager")
    listed = f"{', '.join(measures[:-1])}, or {measures[-1]}" if len(measures) > 1 else f"take {measures[0]}"
    return f"Run the same number of iterations on all ranks: {listed}."
