"""DDP308: ranks that run fewer iterations of a loop than the others."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.diagnosis.data.batches import uneven_shards
from ddpnb.diagnosis.execution.departure import Departure
from ddpnb.diagnosis.execution.departures import departures
from ddpnb.model import phrases
from ddpnb.model.calls import Call, Site
from ddpnb.model.collectives import Collective
from ddpnb.model.events.data import LoaderSeen
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.source.branches import guards_of
from ddpnb.source.loops import loop_around
from ddpnb.source.paths import Parting

# A rank that left a loop is in other micro-batches than the others from there on.
UNEVEN_ITERATIONS = FindingType("DDP308", "uneven-iterations", supersedes=("DDP408",), ways_part=True)


def fewer_batches(recording: Recording, ranks: Sequence[int]) -> bool:
    """Whether the loaders counted fewer batches on one of these ranks."""
    finding = uneven_shards(recording, stopped=True)
    return finding is not None and not set(finding.culprits).isdisjoint(ranks)


def calls_like(record: RankRecord, call: Call) -> int:
    """How many calls a rank has made from the line of a call, in its group."""
    return sum(1 for c in record.calls if c.site == call.site and c.group.key == call.group.key)


def began_as_many(recording: Recording, rank: int, call: Call, others: Sequence[int]) -> bool:
    """Whether the other ranks ran as many forwards as the one that waits, which ran one for each call from that line.

    A rank that waits in a broadcast within forward has not counted that forward: it has made more calls than forwards.
    """
    record = recording.ranks[rank]
    if record.forgotten or not record.forwards >= calls_like(record, call):
        return False
    return all(recording.ranks[other].forwards >= record.forwards for other in others)


def ranks_after_loop(
    recording: Recording, collective: Collective, where: Parting
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """(ranks that have left a loop, ranks still in it), if one side did and had been in it."""
    odd, reference = collective.sides[-1], collective.sides[0]
    for gone, inside, gone_at, rest in (
        (odd, reference, where.one, where.other_rest),
        (reference, odd, where.other, where.one_rest),
    ):
        been = collective.calls[inside[0]].site
        if not any(call.site == been for call in recording.ranks[gone[0]].calls):
            continue
        here = collective.calls[gone[0]].site
        shared = any(call.site == here for call in recording.ranks[inside[0]].calls)
        if not shared and guards_of(recording.sources.get(gone_at.file, ""), gone_at.line):
            continue  # a call that possibly one side alone makes, independent of the loops
        for depth, site in enumerate(rest):
            loop = loop_around(recording.sources.get(site.file, ""), site.line)
            # Deeper frames are ones that the other rank has returned from.
            if loop is not None and ((depth > 0 and gone_at.line > rest[0].line) or gone_at.line > loop[1]):
                return gone, inside
    return None


def uneven_calls(
    recording: Recording, collective: Collective, sides: tuple[tuple[int, ...], tuple[int, ...]]
) -> Finding:
    gone, inside = sides
    mine, theirs = collective.calls[gone[0]], collective.calls[inside[0]]
    records = [recording.ranks[side[0]] for side in (gone, inside)]
    made = [sum(1 for c in record.calls if c.site == theirs.site) for record in records]
    places = collective.sites((*gone, *inside))
    is_, are = phrases.verb(gone, "is", "are"), phrases.verb(inside, "is", "are")
    evidence = [
        f"{phrases.ranks(inside, True)} {are} in {phrases.in_call(theirs)}{phrases.at(theirs.site)}, "
        f"call number {made[1]}{' or later' if records[1].forgotten else ''} at that line.",
        f"{phrases.ranks(gone, True)} made {phrases.calls(records[0], made[0])} at that line and "
        f"{is_} in {phrases.in_call(mine)}{phrases.at(mine.site)}.",
    ]
    what = f"{is_} in {mine.op}{phrases.at(mine.site)} after {phrases.calls(records[0], made[0])} at {theirs.site}"
    return uneven_iterations(recording, gone, inside, what, theirs, places, evidence)


def uneven_iterations(
    recording: Recording,
    gone: tuple[int, ...],
    inside: tuple[int, ...],
    what: str,
    call: Call,
    where: tuple[tuple[int, Site], ...],
    evidence: list[str],
) -> Finding:
    """The finding for a loop of which some ranks ran fewer iterations.

    Args:
        recording: what is known.
        gone: these ranks.
        inside: the ranks that are blocked in one more.
        what: what ``gone`` did, from the verb on.
        call: what ``inside`` are blocked in.
        where: the ranks' places.
        evidence: what was observed.
    """
    ways = departures(recording, gone, inside, call)
    return Finding(
        UNEVEN_ITERATIONS,
        f"{phrases.ranks(gone, True)} {what}; {phrases.ranks(inside)} {phrases.verb(inside, 'is', 'are')} "
        f"blocked in one more {call.op}{phrases.at(call.site)}.",
        gone,
        inside,
        call,
        where,
        tuple(evidence),
        _remedy([recording.ranks[rank] for rank in (*gone, *inside)], ways),
        certainty="proven" if ways and all(way.leaves_loop for way in ways) else "likely",
    )


def _remedy(records: Sequence[RankRecord], ways: Sequence[Departure]) -> str:
    """By what was recorded: how the loop was left, what it read, whether a model is wrapped."""
    if any(way.word == "break" for way in ways):
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
