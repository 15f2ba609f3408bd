"""DDP319: torch.compile did on some ranks what it did not do on the others, and from there on their calls differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from ddpnb.recording import phrases
from ddpnb.recording.calls import Call, CallState, Site
from ddpnb.recording.collectives import call_in
from ddpnb.recording.events.runs import MOST_COMPILATIONS, Compilation
from ddpnb.recording.facts.compilations import described, named
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stacks import in_backward
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.split import split
from ddpnb.rules.rule import MISMATCHES, SET_UP, Draft, refine, refined, title

COMPILED_DIFFERENTLY = FindingType("DDP319", "compiled-differently", ways_part=True)

_CONTEXT = (8, 4, 2, 1)  # calls before a compilation, by which the calls that usually follow are found
_FEW = 4  # ranks that are described


@dataclass(frozen=True, slots=True)
class _Own:
    """What a rank compiled before its call, and others did not.

    ``inside``: the call was made by the compiler. ``differs``: the calls since are other ones than before.
    """

    made: tuple[Compilation, ...]
    inside: bool = False
    differs: bool = True

    @property
    def last(self) -> Compilation:
        return self.made[-1]


@refine(
    COMPILED_DIFFERENTLY,
    refines=("DDP301", *MISMATCHES, "DDP306"),
    after=(*SET_UP, "DDP407", "DDP408", "DDP411", "DDP605"),
)
def compiled_differently(snap: Snapshot, finding: Finding) -> Draft | None:
    """What ranks compiled alone is the cause of their calls, or belongs to the evidence."""
    recording, standings = snap.recording, snap.standings
    if finding.collective is None or not any(record.events(Compilation) for record in snap.ranks.values()):
        return None
    ranks = sorted(finding.concerned & set(recording.ranks))
    now: dict[int, Call] = {}
    for rank in ranks:
        call = standings[rank].call or _current(recording.ranks[rank], finding.collective)
        if call is not None:
            now[rank] = call
    # A compiled backward makes its calls at the user's line that called backward().
    backward = frozenset(call.site for rank, call in now.items() if in_backward(standings[rank]))
    own = _alone(recording, now, backward)
    if not own:
        return None
    says = tuple(text for rank, one in list(own.items())[:_FEW] for text in _evidence(rank, one))
    ranks = [rank for rank, one in own.items() if one.differs]
    if not ranks:
        sizes = finding.code in ("DDP303", "DDP304")
        return refined(finding, finding.type, evidence=(*finding.evidence, *says)) if sizes else None
    others = phrases.besides(now, ranks)
    culprits = tuple(ranks) if len(ranks) <= len(others) else others
    sides = () if culprits else finding.sides or split({rank: phrases.made(call) for rank, call in now.items()}).sides
    waiting = () if sides else phrases.besides(now, culprits)
    places = dict.fromkeys((rank, site) for rank in ranks[:_FEW] for site in _sites(own[rank].made))
    kind = finding.type
    return refined(
        finding,
        replace(
            COMPILED_DIFFERENTLY,
            mismatch=kind.mismatch,
            separate_calls=kind.separate_calls,
            extra_call=kind.extra_call and culprits == finding.culprits,
        ),
        summary=_summary(ranks, others, own[ranks[0]], now),
        culprits=culprits,
        waiting=waiting,
        sides=sides,
        where=tuple(dict.fromkeys((*places, *finding.where))),
        evidence=(*says, *phrases.observed(finding), *phrases.undecided(sides)),
        remedy=_remedy(own[ranks[0]]),
        certainty="likely",
        hint=None,
    )


def _alone(recording: Recording, now: Mapping[int, Call], backward: frozenset[Site]) -> dict[int, _Own]:
    """What ranks compiled last before their calls, if one of these calls was made in that function, and others compiled it less often."""
    made = {rank: _before(recording.ranks[rank], call) for rank, call in now.items()}
    if max(map(len, made.values()), default=0) >= MOST_COMPILATIONS:
        return {}
    counts = {rank: Counter((one.site, one.library) for one in some) for rank, some in made.items()}
    calls = {call.site: call for call in now.values()}
    known: dict[tuple[object, ...], list[int]] = {}
    for rank, some in made.items():
        for function in dict.fromkeys(map(_function, some)):
            known.setdefault(function, []).append(rank)

    @cache
    def least(function: tuple[object, ...], key: tuple[Site, str]) -> int:
        """How often the ranks have compiled this that did least; one that never compiled the function did not call it."""
        return min(counts[rank][key] for rank in known[function])

    found: dict[int, _Own] = {}
    for rank, call in now.items():
        more = (
            one
            for one in reversed(made[rank])
            if least(_function(one), (one.site, one.library)) < counts[rank][one.site, one.library]
        )
        last = next(more, None)
        if last is None:
            continue
        if last.state == "open" or call.entered_ns < last.ended_ns:
            found[rank] = _Own((last,), inside=True)
        elif any(_made_by(last, one, backward) for one in calls.values()):
            own = _since(recording.ranks[rank], call, made[rank], last, backward)
            found |= {} if own is None else {rank: own}
    return found


def _since(
    record: RankRecord, call: Call, made: Sequence[Compilation], last: Compilation, backward: frozenset[Site]
) -> _Own | None:
    """What a rank compiled in one go, if its calls since were made there."""
    calls = [one for one in record.calls if one.number <= call.number]
    since = [one for one in calls if one.entered_ns > last.began_ns]
    before = calls[: len(calls) - len(since)]
    begin = before[-1].entered_ns if before else 0
    fresh = tuple(one for one in made if _function(one) == _function(last) and one.began_ns > begin)
    differs = _differs(last, before, since, backward)
    return None if differs is None else _Own(fresh, differs=differs)


def _before(record: RankRecord, call: Call) -> list[Compilation]:
    """The compilations of functions before a call."""
    return [one for one in record.events(Compilation) if not one.part and one.began_ns < call.entered_ns]


def _function(one: Compilation) -> tuple[object, ...]:
    """What was compiled, or the rest of it. The user's line is all that is known of a function of a library."""
    return (one.site, one.library) if one.library else (one.site.file, one.site.function)


def _made_by(one: Compilation, call: Call, backward: frozenset[Site]) -> bool:
    """Whether a call was made in a compiled function, or where its backward may have made it."""
    at = call.site
    return at in backward or (at == one.site if one.library else (at.file, at.function) == _function(one))


def _differs(
    last: Compilation, before: Sequence[Call], since: Sequence[Call], backward: frozenset[Site]
) -> bool | None:
    """Whether the calls since a compilation are others than followed such calls before.

    Also where it is not known what followed; None: those of the compiled function are over, and were as always, or a whole turn was.
    """
    at, made = _last_time(before), 0
    turn = len(before) - at if at is not None else len(since)
    for number, call in enumerate(since[: turn + 1]):
        usual = (*before, *since)[at + number] if at is not None else None
        if usual is None or _kind(call) != _kind(usual):
            # A graph without collectives; after some of them, the function may have been called once less.
            skipped = usual is not None and _made_by(last, usual, backward) and not made
            return _made_by(last, call, backward) or skipped or None
        made += _made_by(last, call, backward)
        if number == turn or not (backward or _made_by(last, call, backward)):
            return None
    return False


def _last_time(calls: Sequence[Call]) -> int | None:
    """The place of the call that followed the last ones when these were made the time before; None: they never were."""
    kinds = [_kind(call) for call in calls]
    for width in _CONTEXT:
        for end in range(len(kinds) - 1, width - 1, -1):
            if kinds[end - width : end] == kinds[len(kinds) - width :]:
                return end
    return None


def _kind(call: Call) -> tuple[object, ...]:
    return call.op, call.signature.reduce_op, call.signature.root, call.group.key, call.site


def _sites(made: Sequence[Compilation]) -> list[Site]:
    """The lines at which graphs broke, and the functions."""
    broken = [Site(cut.file, cut.line, one.site.function) for one in made for cut in one.breaks]
    return [*broken, *(one.site for one in made)]


def _summary(ranks: Sequence[int], others: Sequence[int], own: _Own, now: Mapping[int, Call]) -> str:
    last = own.last
    cut = next((cut for one in reversed(own.made) for cut in one.breaks), None)
    again = " again" if any(one.again for one in own.made) else ""
    if own.inside:
        did = f"{phrases.verb(ranks, 'compiles', 'compile')} {named(last)}{again}, and the compiler waits in {now[ranks[0]].title}"
    elif cut is not None:
        did = f"broke the graph of {last.site.function} at {cut.file}:{cut.line}"
    else:
        did = f"compiled {named(last)}{again}"
    did_not = f", {phrases.ranks(others)} did not" if others else ", each in another way"
    return title(f"{phrases.ranks(ranks, True)} {did}{did_not}.", f"{phrases.ranks(ranks, True)} {did}.")


def _evidence(rank: int, own: _Own) -> list[str]:
    return [f"Rank {rank} {described(one)}" for one in own.made[-_FEW:]]


def _remedy(own: _Own) -> str:
    reasons = " ".join(one.reason for one in own.made)
    if own.inside:
        return (
            "Let all ranks compile again when one does: torch.compiler.set_enable_guard_collectives(True), or give all ranks "
            "inputs that need the same graph."
        )
    if "mismatch at index" in reasons or "rank mismatch" in reasons:
        return (
            "Give the compiled function tensors of the same sizes on all ranks: pad them, or agree on one size first. "
            "torch.compile(dynamic=True) or torch._dynamo.mark_dynamic keep one graph for all sizes, unless the code branches on them."
        )
    if any(one.breaks for one in own.made) or not reasons:
        return (
            "Let all ranks take the same way through the compiled function: all_reduce the condition first, or keep collectives "
            "out of its branches. torch.compile(fullgraph=True) refuses graph breaks."
        )
    return (
        "Give what the guard compares the same value on all ranks before the call; a number that changes can be a tensor, "
        'which needs no new graph. torch.compiler.set_stance("fail_on_recompile") shows each such place.'
    )


def _current(record: RankRecord, call: Call) -> Call | None:
    """The call of a rank in this collective; else its last one, if it is still in it."""
    own = call_in(record, call.group, call.seq)
    last = record.calls[-1] if record.calls and record.ending is None else None
    return own or (last if last is not None and last.state is not CallState.COMPLETED else None)
