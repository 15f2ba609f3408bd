"""DDP302 to DDP305: ranks that made different calls with the same sequence number in a group."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE, Call, CallState, Site
from ddpnb.recording.collectives import Collective, MatchState, root_of
from ddpnb.recording.ending import Ending
from ddpnb.recording.facts.departures import by_habit
from ddpnb.recording.facts.endings import is_consequence, is_fence_stop
from ddpnb.recording.facts.mismatches import caught, raised_in
from ddpnb.recording.facts.paths.partings import parting
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stops import Stop
from ddpnb.recording.findings import FindingType
from ddpnb.recording.recording import Recording
from ddpnb.recording.source.loops import taken_from
from ddpnb.recording.split import Split
from ddpnb.rules.hangs.stack_lines import differ_by_stacks
from ddpnb.rules.hangs.table import hang
from ddpnb.rules.rule import Draft, family, title
from ddpnb.texts import shortened

OP_MISMATCH = FindingType("DDP302", "op-mismatch", mismatch=True, ways_part=True)
SHAPE_MISMATCH = FindingType("DDP303", "shape-mismatch", mismatch=True, ways_part=True)
DTYPE_MISMATCH = FindingType("DDP304", "dtype-mismatch", mismatch=True, ways_part=True)
ARGUMENT_MISMATCH = FindingType("DDP305", "argument-mismatch", mismatch=True, ways_part=True)
MISMATCHES = (OP_MISMATCH, SHAPE_MISMATCH, DTYPE_MISMATCH, ARGUMENT_MISMATCH)


@hang(*MISMATCHES, needs=())
def mismatch(snap: Snapshot, stop: Stop) -> Draft | None:
    """Ranks made different calls on purpose: at the same line, or in the branches of one decision."""
    if stop.collective is None:
        return differ_by_stacks(snap, stop, OP_MISMATCH)
    draft = _different_calls(snap.recording, stop.collective)
    consequences = _consequences(snap.recording, stop.collective, stop.then)
    return replace(draft, evidence=(*draft.evidence, *consequences))


@family(*MISMATCHES, needs=("calls",))
def caught_mismatch(snap: Snapshot) -> Iterable[Draft]:
    """The program caught the exception that a call raised since it differed from the others, and continued."""
    first = caught(snap.recording)
    if first is not None:
        draft = _different_calls(snap.recording, first)
        says = "The program caught the exception of its call, and all ranks continued."
        yield replace(draft, severity="note", evidence=(says, *draft.evidence))


# type, remedy
_FINDINGS = {
    MatchState.COLLECTIVE_TYPE_MISMATCH: (
        OP_MISMATCH,
        "Call the same operation on all ranks here, or use a separate group for each branch.",
    ),
    MatchState.SIZE_OR_SYNTAX_MISMATCH: (
        SHAPE_MISMATCH,
        "Use tensors of the same size on all ranks (pad them, or exchange the sizes first).",
    ),
    MatchState.COLLECTIVE_DTYPE_MISMATCH: (
        DTYPE_MISMATCH,
        "Convert to one dtype before the call, on every rank.",
    ),
    MatchState.ARGUMENT_MISMATCH: (
        ARGUMENT_MISMATCH,
        "Pass the same reduce operation, root, splits and memory layout on every rank.",
    ),
}


_SIDES = 8  # different calls that are listed
_PAIRS = 4  # of ranks whose sizes do not fit


def _different_calls(recording: Recording, collective: Collective) -> Draft:
    kind, remedy = _FINDINGS[collective.match]
    calls, all_sides = collective.calls, collective.sides
    reference = calls[all_sides[0][0]]
    changed = [rank for rank in calls if _before(recording, collective, rank)]
    split = Split(all_sides)
    known = parting(recording, all_sides[-1], all_sides[0])
    culprits = collective.odd_ranks or split.blamed(changed)
    inferred = () if culprits or known is None else split.blamed(known.odd)
    culprits = culprits or inferred
    ends = {rank for pair in collective.unpaired for rank in pair[:2]} if len(culprits) == 2 else set[int]()
    if ends and ends == set(culprits):  # the two ends of one exchange: either may have the wrong sizes
        sides, culprits = tuple((rank,) for rank in culprits), ()
    else:
        sides = () if culprits else all_sides
    rest = phrases.besides((rank for side in all_sides for rank in side), culprits)
    waiting = () if sides else rest
    evidence: list[str] = []
    place = f"collective #{collective.collective_seq_id} of {phrases.group(collective.group)}"
    for number, side in enumerate(all_sides[:_SIDES]):
        sites = sorted({str(calls[rank].site) for rank in side if calls[rank].site != NO_SITE})
        at = f" at {', '.join(sites[:3])}" if sites else ""
        who = phrases.ranks(side, True) if number else f"In {place}, {phrases.ranks(side)}"
        evidence.append(f"{who} called {phrases.made(calls[side[0]])}{at}.")
    if len(all_sides) > _SIDES:
        others = [rank for side in all_sides[_SIDES:] for rank in side]
        evidence.append(f"{phrases.ranks(others, True)} called it in {len(all_sides) - _SIDES} other ways.")
    unpaired = _unpaired(collective, culprits)
    if collective.match is MatchState.ARGUMENT_MISMATCH and reference.signature.in_splits and not unpaired:
        evidence += [
            f"Rank {rank}: sends {_listed(call.signature.in_splits)}, expects {_listed(call.signature.out_splits)}."
            for rank, call in sorted(calls.items())[:8]
        ]
    evidence += [f"R{text[1:]}." for text in unpaired[:_PAIRS]]
    if collective.unpaired:
        remedy = "Exchange the sizes first (all_to_all_single of the counts), so that each rank expects what the others send."
    elif collective.match is MatchState.SIZE_OR_SYNTAX_MISMATCH and known is not None and known.kind == "operation":
        remedy = _in_one_order(recording, reference.site) + remedy
    evidence += [_before(recording, collective, rank) for rank in changed if rank in culprits][:1]
    if inferred and known is not None:
        evidence += by_habit(known, inferred)
    return Draft(
        phrases.sentence(f"R{unpaired[0][1:]}")
        if unpaired
        else _title(calls, sorted(all_sides, key=lambda side: side[0] not in culprits)),
        culprits,
        remedy,
        {rank: calls[rank].site for rank in (*culprits, *rest)},
        waiting,
        sides,
        evidence,
        kind=kind,
        collective=reference,
        certainty="likely" if inferred else "proven",
    )


def _in_one_order(recording: Recording, site: Site) -> str:
    """All ranks decided alike and came to one line of a loop: what the loop gives them may come in another order."""
    found = taken_from(recording.sources.get(site.file, ""), site.line)
    if found is None:
        return ""
    line, over = found
    return f"If the loop over `{over}` (line {line}) gives ranks another order, sort what it iterates over. Otherwise: "


def _consequences(recording: Recording, collective: Collective, then: Collective | None) -> Iterator[str]:
    """What followed: another call that differed too, and how ranks ended in it."""
    fatal = then or collective
    if then is not None:
        site = next((call.site for call in then.calls.values() if call.site != NO_SITE), NO_SITE)
        yield f"It completed with wrong data; the calls in #{then.collective_seq_id}{phrases.at(site)} differ too."
    for rank, call in list(fatal.calls.items())[:_SIDES]:
        ending = recording.ranks[rank].ending
        if ending is None or ending.well or call.state is CallState.COMPLETED or is_fence_stop(ending):
            continue
        if ending.how == "died" and ending.code != -signal.SIGTERM:
            aborted = " (gloo aborts a process that receives more than it expects)" * (ending.signal_name == "SIGABRT")
            yield f"Rank {rank} {_died(ending)} in this call{aborted}."
        elif raised_in(recording.ranks[rank], call) and not is_consequence(recording.ranks[rank]):
            yield phrases.sentence(f"Rank {rank} failed in this call: {shortened(ending.message.strip(' .'), 200)}")


def _died(ending: Ending) -> str:
    return f"was killed ({ending.signal_name})" if ending.code < 0 else f"exited with status {ending.code}"


def _unpaired(collective: Collective, culprits: tuple[int, ...]) -> list[str]:
    """The pairs of an all_to_all whose sizes in elements do not fit, those of the culprits first."""
    if any(call.signature.out_shapes is None for call in collective.calls.values()):
        return []
    pairs = sorted(collective.unpaired, key=lambda pair: (pair[0] == pair[1], pair[0] not in culprits))
    return [f"rank {a} sends {sent} elements to rank {b}, which expects {expected}" for a, b, sent, expected in pairs]


_NAMED = 3  # different calls in a title
_LONG = 40  # characters of sizes in a title


def _title(calls: Mapping[int, Call], sides: Sequence[tuple[int, ...]]) -> str:
    """What each side calls, the culprits first, with only what differs."""
    first, other = calls[sides[0][0]], calls[sides[1][0]]
    same_op = len({calls[side[0]].op for side in sides}) == 1
    said: list[str] = []
    for number, side in enumerate(sides):
        call = calls[side[0]]
        what = f" {argument(call, first if number else other)}" if same_op else ""
        verb = f" {phrases.verb(side, 'calls', 'call')} {call.op}" if not number or not same_op else ""
        said.append(f"{phrases.ranks(side, not number)}{verb}{what}")
    versions = [
        f"{', '.join(said[:shown])}{f', and {len(said) - shown} more differ' if shown < len(said) else ''}."
        for shown in range(min(_NAMED, len(said)), 1, -1)
    ]
    ranks = phrases.ranks(rank for side in sides for rank in side)
    what = (
        "tensors of different sizes"
        if len({calls[side[0]].signature.elements for side in sides}) > 1
        else "different arguments"
    )
    who = f"{ranks[:1].upper()}{ranks[1:]}"
    return title(*versions, f"{who} call {first.op} with {what}." if same_op else f"{who} make different calls.")


def argument(call: Call, other: Call) -> str:
    """Only the argument that differs: ``of [12]``, ``with root 1``."""
    mine, theirs = call.signature, other.signature
    if mine.elements != theirs.elements:
        return f"of {shortened(', '.join(str(list(shape)) for shape in mine.shapes), _LONG)}"
    if mine.dtypes != theirs.dtypes:
        return f"of {shortened(', '.join(mine.dtypes), _LONG)}"
    if mine.reduce_op != theirs.reduce_op:
        return f"with {mine.reduce_op}"
    if mine.root != theirs.root:
        return f"with root {root_of(call)}"
    if mine.in_splits or mine.out_splits:
        return f"that sends {_listed(mine.in_splits)} and expects {_listed(mine.out_splits)}"
    if mine.layout != theirs.layout:
        return f"with {mine.layout or 'contiguous tensors'}"
    return f"of {str(mine).partition('(')[2].removesuffix(')')}"


def _listed(splits: tuple[int, ...] | None) -> str:
    """The splits, abbreviated where there are many: equal consecutive ones are counted."""
    all_splits = splits or ()
    if len(all_splits) <= 2 * _SIDES:
        return str(list(all_splits))
    pieces = [(value, len(list(equal))) for value, equal in groupby(all_splits)]
    words = [f"{count} x {value}" if count > 1 else str(value) for value, count in pieces[:_SIDES]]
    return f"[{', '.join(words)}{f' ... : {len(all_splits)} in all' if len(pieces) > _SIDES else ''}]"


def _before(recording: Recording, collective: Collective, rank: int) -> str:
    """The previous call of a rank at this line, if it never made it in this way before.

    A line that calls a framework makes calls of many kinds: there it says nothing.
    """
    call = collective.calls[rank]
    site = call.site
    if site == NO_SITE:
        return ""
    at_line = [c for c in recording.ranks[rank].calls if (c.site is site or c.site == site) and c.number < call.number]
    earlier = [c for c in at_line if c.op == call.op]
    if not earlier or any(c.signature.agreed == call.signature.agreed for c in earlier):
        return ""
    if len({c.op for c in at_line}) > 1 and collective.match is MatchState.COLLECTIVE_TYPE_MISMATCH:
        return ""
    return f"Rank {rank}'s previous call at this line was {phrases.made(earlier[-1])}."
