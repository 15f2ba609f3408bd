"""DDP308: ranks that run fewer iterations of a loop than the others."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.facts.paths.partings import parting
from ddpnb.model import phrases
from ddpnb.model.calls import Call, Site
from ddpnb.model.collectives import Collective
from ddpnb.model.events.data import LoaderSeen
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.parting import Parting
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.rules.data.batches import uneven_shards

# A rank that left a loop is in other micro-batches than the others from there on.
UNEVEN_ITERATIONS = FindingType("DDP308", "uneven-iterations", supersedes=("DDP408",), ways_part=True)


def fewer_batches(recording: Recording, ranks: Sequence[int]) -> bool:
    """Whether the loaders counted fewer batches on one of these ranks."""
    finding = uneven_shards(recording, stopped=True)
    return finding is not None and not set(finding.culprits).isdisjoint(ranks)


def calls_like(record: RankRecord, call: Call) -> int:
    """How many calls a rank has made from the line of a call, in its group."""
    return sum(1 for c in record.calls if c.site == call.site and c.group.key == call.group.key)


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
    known = parting(recording, gone, inside)
    return Finding(
        UNEVEN_ITERATIONS,
        f"{phrases.ranks(gone, True)} {what}; {phrases.ranks(inside)} {phrases.verb(inside, 'is', 'are')} "
        f"blocked in one more {call.op}{phrases.at(call.site)}.",
        gone,
        inside,
        call,
        where,
        tuple(evidence),
        _remedy([recording.ranks[rank] for rank in (*gone, *inside)], known),
        certainty="proven" if known is not None and known.left_loop(gone) else "likely",
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
