"""How a finding is declared: a function from a Snapshot to Drafts, under one or more codes.

Example:
    >>> @rule("DDP107", "version-mismatch")
    ... def versions(snap: Snapshot) -> Iterable[Draft]:
    ...     starts = snap.last(InitProcessGroup)
    ...     yield from differ(
    ...         starts.of(lambda start: start.versions.get("torch")),
    ...         at=starts,
    ...         one="{who} [runs|run] torch {mine}, {others} {theirs}.",
    ...         tie="The ranks run different versions of torch: {sides}.",
    ...         line="torch {}",
    ...         remedy="Install the same versions for all ranks.",
    ...     )
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import Any

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE, Call, Site
from ddpnb.recording.facts.once import once
from ddpnb.recording.facts.places import Placed
from ddpnb.recording.facts.snapshot import Part, PerRank, Snapshot
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.facts.stops import Stop
from ddpnb.recording.findings import Certainty, Finding, FindingType, Hint, Severity
from ddpnb.recording.recording import Recording
from ddpnb.recording.replicas import Sample
from ddpnb.recording.split import by_value, split

FEW = 8  # ranks with a line of their own
MOST_WORDS = 20  # of a summary: it is the title of a card
#: In ``refines``: calls with one number that differ.
MISMATCHES = ("DDP302", "DDP303", "DDP304", "DDP305")
#: In ``after``: how models, hooks and threads were set up, which may be why calls differ.
SET_UP = ("DDP202", "DDP310", "DDP403", "DDP404", "DDP412", "DDP416")
#: In ``after``: any reason why ranks failed or are blocked.
FAILURE = "failure"
#: In ``after``: any error; such a rule is asked after all others.
ERROR = "error"


@dataclass(frozen=True, slots=True)
class Rule:
    """A function that finds something, and when it is asked.

    ``kinds``: what it may find. ``after``: it is not asked where an error of one of these codes (or ``FAILURE``) was found,
    which is its cause. ``refines``: it is asked after these codes, and may put a more specific finding in their place.
    ``needs``: without these facts of at least one rank it is not asked. ``failure``: it says why ranks failed or are blocked. ``gives``: codes of other rules' findings that it puts in the place of
    one that it refines. ``cause``: it is asked after all other failures, and what it finds is their cause and comes before them.
    """

    kinds: tuple[FindingType, ...]
    find: Find
    after: tuple[str, ...] = ()
    refines: tuple[str, ...] = ()
    needs: tuple[Part, ...] = ("events",)
    failure: bool = False
    gives: tuple[str, ...] = ()
    cause: bool = False

    @property
    def phase(self) -> int:
        """When it is asked: failures first, then their causes, then the rest, and last what needs that nothing is wrong."""
        return 3 if ERROR in self.after else 1 if self.cause else 0 if self.failure else 2

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(kind.code for kind in self.kinds)


Find = Callable[[Snapshot], "Iterable[Draft]"]
RULES: list[Rule] = []


def rule(code: str, name: str, *, severity: Severity = "error", **how: Any) -> Callable[[Find], Find]:
    """Register a rule under one code.

    Args:
        code: such as ``"DDP107"``. Its page is ``catalogue/pages/DDP107.md``.
        name: such as ``"version-mismatch"``.
        severity: of its findings.
        **how: further fields of ``Rule`` (``after``, ``refines``, ``needs`` ...) and of ``FindingType`` (``supersedes`` ...).
    """
    own = {field.name for field in fields(Rule)}
    declared = {field: how.pop(field) for field in [*how] if field not in own}
    return family(FindingType(code, name, severity, **declared), **how)


def family(*kinds: FindingType, **how: Any) -> Callable[[Find], Find]:
    """Register a rule under several codes, one of which each of its Drafts names (``Draft.kind``); ``how``: as for ``rule``."""

    def add(find: Find) -> Find:
        RULES.append(Rule(kinds, find, **how))
        return find

    return add


Refine = Callable[[Snapshot, Finding], "Draft | None"]


def refine(*kinds: FindingType, refines: tuple[str, ...], **how: Any) -> Callable[[Refine], Refine]:
    """Register a rule that is asked about each finding of these codes: for a more specific one in its place, or None.

    Args:
        *kinds: which of them it may be; none if it gives findings of other rules, or the same with other words.
        refines: the codes.
        **how: as for ``rule``.
    """

    def add(find: Refine) -> Refine:
        @wraps(find)
        def every(snap: Snapshot) -> Iterable[Draft]:
            return (draft for finding in snap.found(*refines) if (draft := find(snap, finding)) is not None)

        family(*kinds, refines=refines, failure=True, **how)(every)
        return find

    return add


@dataclass(frozen=True, slots=True)
class Draft:
    """What a rule has found, in facts; the engine makes a Finding of it.

    ``at``: where each rank is: an event, a call, a sample, or a Site; left out: where those of ``stop`` are. ``sides``: ranks that differ where nobody is at fault.
    ``kind``: of a family, which of its kinds it is. ``instead``: the finding in whose place it comes. ``first``,
    ``also``: further places, before and after those.
    ``stop``: of a failure, the stop that it explains.
    The other fields are those of ``Finding``.
    """

    summary: str
    culprits: Sequence[int] = ()
    remedy: str = ""
    at: Mapping[int, Placed | Site] = field(default_factory=dict[int, "Placed | Site"])
    waiting: Sequence[int] = ()
    sides: tuple[tuple[int, ...], ...] = ()
    evidence: Iterable[str] = ()
    kind: FindingType | None = None
    instead: Finding | None = None
    first: tuple[tuple[int, Site], ...] = ()
    also: tuple[tuple[int, Site], ...] = ()
    collective: Call | None = None
    tensors: tuple[str, ...] = ()
    certainty: Certainty = "proven"
    severity: Severity | None = None
    hint: Hint | None = None
    moments: tuple[tuple[int, int], ...] = ()
    stop: Stop | None = None

    def finding(self, kinds: Sequence[FindingType]) -> Finding:
        """As a Finding of its kind, or of the only one of its rule: with places, and the open question of a tie."""
        kind = self.kind or kinds[0]
        sides = () if self.culprits else self.sides
        at = self.at or (self.stop.places if self.stop is not None else {})
        named = dict.fromkeys((*self.culprits, *self.waiting, *at))
        places = ((rank, _site(at[rank])) for rank in named if rank in at)
        return Finding(
            kind,
            self.summary,
            tuple(self.culprits),
            tuple(self.waiting),
            self.collective,
            tuple(dict.fromkeys(place for place in (*self.first, *places, *self.also) if place[1] != NO_SITE)),
            (*self.evidence, *phrases.undecided(sides)),
            self.remedy,
            self.severity or kind.severity,
            self.tensors,
            sides,
            self.certainty,
            self.hint,
            moments=self.moments,
        )


@dataclass(frozen=True, slots=True)
class Refined(Draft):
    """A finding under a more specific code or with other words; what is not given stays as it is in that finding."""

    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    by: Finding | None = None

    def finding(self, kinds: Sequence[FindingType]) -> Finding:
        if self.by is not None:
            return replace(self.by, **self.changes)
        assert self.instead is not None
        return replace(self.instead, type=self.kind or kinds[0], **self.changes)


def of_samples(samples: Mapping[int, Sample], summary: str, culprits: Sequence[int], remedy: str, **more: Any) -> Draft:
    """A Draft about replicas: where each rank took its sample, and when; the others wait, unless nobody is at fault.

    ``more``: further fields of the Draft.
    """
    waiting = () if more.get("sides") and not culprits else phrases.besides(sorted(samples), culprits)
    moments = tuple((rank, sample.at_ns) for rank, sample in sorted(samples.items()))
    fields: dict[str, Any] = {"at": samples, "waiting": waiting, "moments": moments, **more}
    return Draft(summary, tuple(culprits), remedy, **fields)


_FIELDS = frozenset(one.name for one in fields(Finding))


def refined(instead: Finding, kind: FindingType | None = None, **changes: Any) -> Refined:
    """The Draft that puts a changed finding in the place of another.

    Args:
        instead: that one.
        kind: of a family, which of its kinds it is now; ``instead.type`` where it only gets other words.
        **changes: fields of ``Finding``.
    """
    assert changes.keys() <= _FIELDS, changes.keys() - _FIELDS
    return Refined(instead.summary, kind=kind, instead=instead, changes=changes)


def explained(instead: Finding, causes: Iterable[Finding], **changes: Any) -> Refined | None:
    """The Draft that puts the cause of a failure in its place, with what was observed of the failure as evidence.

    Args:
        instead: the failure.
        causes: what another rule has found, of which the first is taken; None if there is none.
        **changes: fields of ``Finding``, for those of the cause.
    """
    by = next(iter(causes), None)
    if by is None:
        return None
    evidence = (*by.evidence, *phrases.observed(instead)[:2])
    return Refined(by.summary, instead=instead, by=by, changes={"evidence": evidence, **changes})


@once
def findings_of(recording: Recording, find: Find) -> tuple[Finding, ...]:
    """What one rule finds in a Recording, asked alone: for what explains a failure by it."""
    rule = next(one for one in RULES if find in (one.find, getattr(one.find, "__wrapped__", None)))
    return tuple(draft.finding(rule.kinds) for draft in rule.find(Snapshot(recording)))


def say(text: str, who: Iterable[int] = (), **words: Any) -> str:
    """A sentence about ranks: ``{who}`` is its subject, whose number the verbs follow; ranks among the words become words.

    Example:
        >>> say("{who} [waits|wait] for {others}.", (0, 2), others=(1,))
        'Ranks 0 and 2 wait for rank 1.'
    """
    subject = tuple(who)
    text = _VERB.sub(lambda found: phrases.verb(subject, found[1], found[2]), text)
    named = {
        name: phrases.ranks(value) if isinstance(value, (tuple, list, set, frozenset)) else value
        for name, value in words.items()
    }
    return text.format(who=phrases.ranks(subject, capital=text.startswith("{who}")), **named)


def waited_for(ranks: Sequence[int], waiting: Sequence[int]) -> str:
    """``; ranks 0 and 2 wait for it``, as the end of a sentence about ranks; empty if none waits."""
    return say("; {who} [waits|wait] for {it}", waiting, it=phrases.verb(ranks, "it", "them")) if waiting else ""


def title(*versions: str) -> str:
    """The first of these sentences that is short enough for a title, or the last one: put what is in the evidence too last."""
    return next((one for one in versions if len(one.split()) <= MOST_WORDS), versions[-1])


_VERB = re.compile(r"\[([^|\]\[]*)\|([^\]\[]*)\]")


def each(ranks: Iterable[int], line: Callable[[int], str]) -> tuple[str, ...]:
    """A line of evidence about each of the first ranks."""
    return tuple(line(rank) for rank in list(ranks)[:FEW])


def in_calls(calls: Mapping[int, Call], standings: Mapping[int, Standing], is_: str = "is") -> tuple[str, ...]:
    """In which calls ranks are, or were, a line each."""
    return each(
        calls,
        lambda rank: f"Rank {rank} {is_} in {phrases.in_call(calls[rank])}{phrases.at(standings[rank].site)}.",
    )


def alike(text: str, words: Mapping[int, Mapping[str, str]]) -> tuple[str, ...]:
    """``say`` of each rank, once for all ranks that have the same words.

    Example:
        >>> alike("{who} [is|are] at {line}.", {0: {"line": "train.py:7"}, 2: {"line": "train.py:7"}})
        ('Ranks 0 and 2 are at train.py:7.',)
    """
    sides = by_value((rank, tuple(own.items())) for rank, own in words.items())
    return tuple(say(text, ranks, **dict(own)) for own, ranks in list(sides.items())[:FEW])


def after_verb(texts: Mapping[int, str]) -> tuple[str, ...]:
    """Sentences about ranks of which these are the parts from the verb on, in the past: equal ones once."""
    return tuple(_told(ranks, text) for text, ranks in list(by_value(texts.items()).items())[:FEW])


def _told(ranks: Sequence[int], text: str) -> str:
    if len(ranks) > 1:
        text = _WAS.sub("were ", text, count=1).replace(" Its last", " Their last", 1)
    return f"{phrases.ranks(ranks, True)} {text}"


_WAS = re.compile(r"\Awas ")


def differ(
    values: PerRank[Any],
    at: Mapping[int, Placed | Site],
    *,
    one: str,
    tie: str,
    line: str,
    remedy: str,
    shown: Callable[[Any], str] = str,
    absent: int = 0,
    **more: Any,
) -> Iterator[Draft]:
    """Ranks whose values differ: the minority is at fault, and nobody in a tie.

    Args:
        values: by rank.
        at: where each rank is.
        one: about a minority, with ``{who}``, ``{mine}``, ``{others}`` and ``{theirs}``.
        tie: about more than two sides or a tie, with ``{sides}``.
        line: of evidence about a rank, with ``{}`` for its value.
        remedy: what to change.
        shown: a value in words.
        absent: how many more ranks have such a value, which is not known.
        **more: fields of the Draft.
    """
    apart = split(values, absent)
    if not apart.differs:
        return
    words = {side[0]: shown(values[side[0]]) for side in apart.sides}
    usual, odd = words[apart.sides[0][0]], shown(values[apart.odd[0]])
    culprits = apart.culprits
    others = phrases.besides(sorted(values), culprits)
    yield Draft(
        tie.format(sides=phrases.by_side(apart.sides, words.__getitem__))
        if apart.tied or len(apart.sides) > 2
        else say(one, culprits, mine=odd, others=others, theirs=usual),
        culprits,
        remedy,
        at,
        waiting=others if culprits else (),
        sides=apart.sides,
        evidence=each(sorted(values), lambda rank: f"Rank {rank}: {line.format(shown(values[rank]))}."),
        **more,
    )


def _site(place: Placed | Site) -> Site:
    return place if isinstance(place, Site) else place.site
