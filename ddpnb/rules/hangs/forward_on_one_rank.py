"""DDP411: one rank runs the wrapped model alone, so its collectives are matched with unrelated ones, or with none.

A wrapped model broadcasts its buffers in forward and synchronises gradients in backward. A rank that runs it
alone shifts all its later calls in the sequence: the call that blocks at last may be far from the cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE, Call
from ddpnb.recording.facts.departures import jumped
from ddpnb.recording.facts.once import once
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stacks import in_backward, in_wrapper
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.rules.rule import FAILURE, MISMATCHES, SET_UP, Draft, each, family, refine, title

RANK_ZERO_FORWARD = FindingType(
    "DDP411",
    "rank-zero-forward",
    ways_part=True,
    # Replicas diverge as a result.
    supersedes=("DDP405", "DDP406", "DDP407", "DDP408", "DDP409", "DDP410", "DDP415", "DDP601", "DDP605"),
)

_SHARDED = frozenset({"all_gather_into_tensor", "reduce_scatter_tensor", "all_gather_into_tensor_coalesced"})
_NEAR = 64  # calls of a lone forward and backward

Place = tuple[str, int, str]


_OTHER_CAUSES = (*SET_UP, "DDP407", "DDP408", "DDP605")


@family(RANK_ZERO_FORWARD, after=(FAILURE,))
def lone_forward(snap: Snapshot) -> Iterable[Draft]:
    """The silent case: the ranks completed, but their calls were matched with unrelated ones."""
    draft = _lone_forward(snap.recording, stopped=False)
    if draft is not None:
        yield draft


@refine(RANK_ZERO_FORWARD, refines=(*MISMATCHES, "DDP301", "DDP308"), after=_OTHER_CAUSES)
def shifted_by_forward(snap: Snapshot, finding: Finding) -> Draft | None:
    """One rank ran the wrapped model alone, so that all its later calls are matched with others."""
    draft = _lone_forward(snap.recording)
    if draft is None:
        return None
    return replace(draft, instead=finding, evidence=(*draft.evidence, *phrases.observed(finding)[:2]))


@once
def _lone_forward(recording: Recording, stopped: bool = True) -> Draft | None:
    """Calls of the wrapped model that one side alone has made, at a line where the others made none.

    Args:
        recording: what is known.
        stopped: the ranks disagreed or are blocked in the end.
    """
    for ranks in _by_group(recording).values() if _has_lone_place(recording) else ():
        usual = {rank: {_place(call) for call in calls.values()} for rank, calls in ranks.items()}
        been = Counter(place for places in usual.values() for place in places)
        for rank, calls in sorted(ranks.items()):
            strange = {place for place in usual[rank] if been[place] == 1}  # where no other rank was
            if not strange:
                continue
            others = [other for other in ranks if other != rank]
            first = _first_of_model(recording, rank, [c for _, c in sorted(calls.items()) if _place(c) in strange])
            if first is not None and _others_forward(recording, others, calls[first]):
                continue
            if first is None or not all(_inserted(recording, ranks, usual, rank, o, first, stopped) for o in others):
                continue
            return _draft(recording, rank, calls[first], {o: ranks[o].get(first) for o in others})
    return None


def _has_lone_place(recording: Recording) -> bool:
    """Whether any rank alone has called from some line in a group: in a healthy run of many ranks none has."""
    been: Counter[tuple[str, Place]] = Counter()
    for record in recording.ranks.values():
        calls = {(id(call.group), id(call.site)): call for call in record.calls if call.seq}
        been.update({(call.group.key, _place(call)) for call in calls.values() if call.site != NO_SITE})
    return 1 in been.values()


def _others_forward(recording: Recording, others: list[int], call: Call) -> bool:
    """Whether another rank has begun a forward at this line: a first forward may make fewer calls than the next."""
    place = call.site.file, call.site.line
    return any(
        sample.kind == "forward" and (sample.site.file, sample.site.line) == place
        for other in others
        for sample in recording.ranks[other].samples
    )


def _by_group(recording: Recording) -> dict[str, dict[int, dict[int, Call]]]:
    found: dict[str, dict[int, dict[int, Call]]] = {}
    for rank, record in recording.ranks.items():
        for call in record.calls:
            if call.seq and call.site != NO_SITE:
                found.setdefault(call.group.key, {}).setdefault(rank, {})[call.seq] = call
    return {key: ranks for key, ranks in found.items() if len(ranks) > 1}


def _place(call: Call) -> Place:
    return call.site.file, call.site.line, call.site.via


def _first_of_model(recording: Recording, rank: int, calls: list[Call]) -> int | None:
    """The first of these calls that the wrapped model makes; calls of one kind are checked once."""
    known: dict[object, bool] = {}
    for call in calls:
        kind = call.group.key, call.site, call.op, call.signature.shapes, call.signature.dtypes
        if kind not in known:
            known[kind] = _of_model(recording, rank, call)
        if known[kind]:
            return call.seq
    return None


def _of_model(recording: Recording, rank: int, call: Call) -> bool:
    """Whether the wrapped model makes such calls: seen where it is known to have run, or as those of a sharded one."""
    record = recording.ranks[rank]
    if call.op in _SHARDED:
        return any(c.op == "reduce_scatter_tensor" and c.group.key == call.group.key for c in record.calls)
    wrapped = {model.number for model in record.models if model.wrapper}
    lines = {
        (s.site.file, s.site.line) for s in record.samples if s.model in wrapped and s.kind in ("forward", "backward")
    }
    if (call.site.file, call.site.line) in lines:
        return True
    # A call that the wrapper makes once (the sizes of its buckets in the first step) proves nothing.
    like = (call.op, call.signature.shapes, call.signature.dtypes)
    alike = [c for c in record.calls if (c.op, c.signature.shapes, c.signature.dtypes) == like]
    return sum((c.site.file, c.site.line) in lines for c in alike) > 1


def _inserted(
    recording: Recording,
    ranks: Mapping[int, Mapping[int, Call]],
    usual: Mapping[int, set[Place]],
    rank: int,
    other: int,
    first: int,
    stopped: bool,
) -> bool:
    """Whether the calls from ``first`` on are additional to the other rank's, and not the same calls from another line."""
    mine = ranks[rank]
    expected = ranks[other].get(first)
    if expected is None:
        return False
    after = next((seq for seq in sorted(mine) if seq > first and _place(mine[seq]) in usual[other]), None)
    if _place(expected) not in usual[rank]:
        # Both run lines that the other does not; or this rank is in the model, and the other rank is not. In backward it
        # trains, so that the other rank may as well be the one that made a call alone.
        # Its last calls may be several: a forward broadcasts the buffers one type after the other.
        last = all(_place(call) == _place(mine[first]) for seq, call in mine.items() if seq > first)
        alone = last and not _of_model(recording, other, expected)
        return stopped and alone and not _in_backward(recording.ranks[rank])
    if mine[first].op in _SHARDED:
        return stopped  # gathered parameters are not gathered again, so the shift is not a fixed number of calls
    if after is None or after - first > _NEAR:
        return False
    if mine[after].op == expected.op and _place(mine[after]) == _place(expected):
        return _steps_alike(recording, rank, other, first, after)
    return _forwards(recording.ranks[rank], recording.ranks[other], mine[first])


def _in_backward(record: RankRecord) -> bool:
    frames = record.main_stack.frames if record.main_stack is not None else ()
    frames = frames or (record.ending.frames if record.ending is not None else ())
    return any("backward" in frame.function.lower() for frame in frames if not frame.user)


def _steps_alike(recording: Recording, rank: int, other: int, first: int, after: int) -> bool:
    """Whether the shift persists: from here on the calls of both ranks, shifted, come from the same lines."""
    mine, theirs = (_calls_of(recording.ranks[r]) for r in (rank, other))
    shift = after - first
    told = [(mine[seq + shift], call) for seq, call in theirs.items() if first <= seq and seq + shift in mine]
    return bool(told) and all(_place(a) == _place(b) for a, b in told[:_NEAR])


def _calls_of(record: RankRecord) -> dict[int, Call]:
    return {call.seq: call for call in record.calls if call.seq}


def _forwards(record: RankRecord, other: RankRecord, call: Call) -> bool:
    """Whether this rank has run the model as often as the other where both do, so that this call is additional.

    Ranks with as many forwards that make their backward passes at two lines make the same calls. On a busy host a rank looks
    at fewer steps than others: what is counted are forwards of steps that both have looked at.
    """
    samples = [[s for s in one.samples if s.kind == "forward"] for one in (record, other)]
    steps = {s.step for s in samples[0]} & {s.step for s in samples[1]}
    shared = {s.site for s in samples[1]}
    counts = [sum(s.step in steps and s.site in shared for s in own) for own in samples]
    backward = any(s.kind == "backward" and s.site == call.site for s in record.samples)
    more = not backward or record.forwards > other.forwards
    return call.site not in shared and more and 0 < counts[1] <= counts[0]


def _draft(recording: Recording, rank: int, call: Call, met: Mapping[int, Call | None]) -> Draft:
    alike = [r for r, one in sorted(recording.ranks.items()) if any(_place(c) == _place(call) for c in one.calls)]
    culprits = tuple(alike) if rank in alike else (rank,)
    others = phrases.besides(sorted(recording.ranks), culprits)
    known = {r: one for r, one in sorted(met.items()) if one is not None}
    return Draft(
        title(
            *(
                f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'runs', 'run')} the wrapped model alone{at}: "
                f"its {call.op} is matched with unrelated calls of the other ranks."
                for at in (phrases.at(call.site), f" at {call.site}", "")
            )
        ),
        culprits,
        _remedy(call),
        dict.fromkeys(culprits, call.site) | {r: known[r].site for r in others if r in known},
        others,
        evidence=(
            f"Rank {rank} called {call.title}{phrases.at(call.site)}, where no other rank made a call.",
            *(f"Rank {r} was in {one.title}{phrases.at(one.site)}." for r, one in list(known.items())[:6]),
        ),
        collective=call,
        certainty="likely",
    )


def _remedy(call: Call | None) -> str:
    """What to do instead of a lone forward that is in this call: the parts of a sharded model are with all ranks."""
    if call is not None and call.op in _SHARDED:
        return (
            "Let all ranks evaluate: each forward of a sharded model gathers its parameters from all ranks. Only what "
            "follows, such as printing, belongs to one rank."
        )
    return (
        "Evaluate with the module itself, model.module(input), under torch.no_grad(), or let all ranks evaluate; a "
        "wrapped model broadcasts its buffers in forward and synchronises in backward."
    )


@refine(RANK_ZERO_FORWARD, refines=("DDP301",), after=(*_OTHER_CAUSES, "DDP411"), needs=("stacks",))
def alone_in_model(snap: Snapshot, finding: Finding) -> Draft | None:
    """The wait is that of a wrapped model's forward or backward, which the others never began."""
    recording, standings = snap.recording, snap.standings
    waiting = [r for r in finding.waiting if r in standings and in_wrapper(standings[r])]
    if not waiting or (len(waiting) > len(finding.culprits) and len(waiting) > 1):
        return None
    turns = {rank: _forwards_of(recording.ranks[rank]) for rank in recording.ranks}
    # At a line that the others have run too, these ranks only continued for longer. A forward that called no
    # collective (the first, without buffers) has left only its sample.
    others_ran = [recording.ranks[c] for c in finding.culprits if c in recording.ranks]
    been = {step.site for record in others_ran for step in (*record.calls, *record.samples)}
    # A forward is counted once the wrapper has begun it: one that is blocked in its buffers' broadcast is not.
    theirs = max((turns[c] for c in finding.culprits if c in turns), default=0)
    ahead = [
        rank
        for rank in waiting
        if standings[rank].site not in been and turns[rank] + (not in_backward(standings[rank])) > theirs
    ]
    evaluating = [rank for rank in waiting if not turns[rank] or rank in ahead]
    if not evaluating or jumped(recording, finding.culprits, finding.waiting):
        return None
    lone = tuple(waiting)
    others = tuple(r for r in finding.culprits if r in standings)
    call = finding.collective
    lone_run = f"{phrases.ranks(lone, True)} {phrases.verb(lone, 'runs', 'run')} the wrapped model alone:"
    return Draft(
        title(
            f"{lone_run} its {call.op if call else 'collective'} waits for {phrases.ranks(others)}, which "
            f"{phrases.verb(others, 'is', 'are')} not in it.",
            f"{lone_run} its {call.op if call else 'collective'} waits for {phrases.ranks(others)}.",
        ),
        lone,
        _remedy(call),
        snap.at((*lone, *others)),
        others,
        evidence=(
            *each(lone[:4], lambda rank: f"Rank {rank} is inside the wrapper{phrases.at(standings[rank].site)}."),
            *phrases.observed(finding),
        ),
        instead=finding,
        collective=call,
        certainty="likely",
    )


def _forwards_of(record: RankRecord) -> int:
    return record.forwards or max((sample.turn for sample in record.samples if sample.kind == "forward"), default=0)
