"""Asks the rules: why ranks failed or are blocked first, causes before their effects, each only where its facts are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

import ddpnb.rules
from ddpnb.recording.facts.snapshot import PARTS, Snapshot
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.rules.rule import ERROR, FAILURE, RULES, Draft, Rule

_ORDER = {"error": 0, "warning": 1, "note": 2}


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, in the order in which they are asked."""
    modules()
    return in_order(RULES)


@cache
def modules() -> tuple[ModuleType, ...]:
    """All modules with rules."""
    names = (package.name for package in walk_packages(ddpnb.rules.__path__, "ddpnb.rules."))
    return tuple(import_module(name) for name in names if not name.endswith("__main__"))


def of_package(name: str) -> tuple[Rule, ...]:
    """The rules of a package, such as ``"environment"``, but for those that say why ranks failed or are blocked."""
    return tuple(r for r in rules() if r.find.__module__.startswith(f"ddpnb.rules.{name}.") and not r.failure)


def in_order(declared: Iterable[Rule]) -> tuple[Rule, ...]:
    """Rules after those whose codes they name in ``after`` or ``refines``, failures before others, else by code.

    Raises:
        graphlib.CycleError: two rules are each to come after the other.
    """
    by_code = sorted(declared, key=_place)
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for number, rule in enumerate(by_code):
        sorter.add(number, *(other for other, one in enumerate(by_code) if other != number and _comes_after(rule, one)))
    try:
        sorter.prepare()
    except CycleError as error:
        names = " -> ".join(by_code[number].find.__qualname__ for number in error.args[1])
        raise CycleError(f"each of these rules is to come after another: {names}") from None
    return tuple(by_code[number] for number in _lowest_first(sorter))


def _place(rule: Rule) -> tuple[object, ...]:
    """By its codes; one that only puts findings of other rules in the place of others comes by those."""
    codes = rule.codes or rule.gives
    return not codes, codes, rule.find.__module__, rule.find.__qualname__


def _comes_after(rule: Rule, other: Rule) -> bool:
    if rule.phase != other.phase:
        return rule.phase > other.phase
    made = {*other.codes, *other.gives}
    return not made.isdisjoint(rule.after) or (not other.refines and not made.isdisjoint(rule.refines))


def _lowest_first(sorter: TopologicalSorter[int]) -> Iterator[int]:
    """The order of a graph in which the lowest of those that may come next is always taken."""
    ready = list(sorter.get_ready())
    while ready:
        number = min(ready)
        ready.remove(number)
        yield number
        sorter.done(number)
        ready += sorter.get_ready()


def ask(snap: Snapshot, asked: Sequence[Rule]) -> list[Finding]:
    """What these rules find beside ``snap.failures``: errors first, then warnings and notes.

    Failures come in the order of their stops. What they supersede is left out, and so is a second finding of one type that
    another rule has made: the earlier one shows the cause.

    Args:
        snap: what they see; ``snap.findings`` and ``snap.failures`` are what has been found so far.
        asked: in order.
    """
    given = snap.failures
    snap.findings = list(given)
    parts = {part for part in PARTS if snap.knows(part)}
    possible = [rule for rule in asked if parts.issuperset(rule.needs)]
    places = (
        {id(stop): place for place, stop in enumerate(snap.stops)} if any(rule.failure for rule in possible) else {}
    )
    of_stops: list[tuple[int, Finding]] = [(-1, finding) for finding in given]
    final: set[int] = set()  # the identity of findings that are not refined again
    found = _Found.of(snap)
    for rule in possible:
        if not found.leave_open(rule):
            continue
        drafts = list(rule.find(snap))
        known = {finding.type for finding in _not_failures(snap)} if drafts and not rule.failure else set[FindingType]()
        for draft in drafts:
            finding = draft.finding(rule.kinds)
            if draft.instead is not None:
                _replace(snap, of_stops, draft, finding, final)
            elif rule.failure:
                of_stops.append((-1 if rule.cause else places.get(id(draft.stop), len(places)), finding))
                snap.findings.append(finding)
            elif finding.type not in known:
                snap.findings.append(finding)
        if drafts:
            of_stops.sort(key=lambda one: one[0])
            snap.failures = tuple(finding for _, finding in of_stops)
            found = _Found.of(snap)
    return [*snap.failures[len(given) :], *_beside(snap)]


@dataclass(frozen=True, slots=True)
class _Found:
    """The codes that were found, and those of errors, with ``FAILURE`` and ``ERROR`` for any of them."""

    codes: frozenset[str]
    causes: frozenset[str]

    @classmethod
    def of(cls, snap: Snapshot) -> _Found:
        errors = {finding.code for finding in snap.findings if finding.severity == "error"}
        causes = errors | ({ERROR} if errors else set[str]()) | ({FAILURE} if snap.failures else set[str]())
        return cls(frozenset(finding.code for finding in snap.findings), frozenset(causes))

    def leave_open(self, rule: Rule) -> bool:
        """Whether no cause of what a rule finds was found, and something that it refines was."""
        return self.causes.isdisjoint(rule.after) and (not rule.refines or not self.codes.isdisjoint(rule.refines))


def _replace(
    snap: Snapshot, of_stops: list[tuple[int, Finding]], draft: Draft, finding: Finding, final: set[int]
) -> None:
    if id(draft.instead) in final:
        return
    for place, one in enumerate(snap.findings):
        if one is draft.instead:
            snap.findings[place] = finding
            final.add(id(finding))
    for place, (stop, one) in enumerate(of_stops):
        if one is draft.instead:
            of_stops[place] = stop, finding


def _beside(snap: Snapshot) -> list[Finding]:
    """What was found beside the failures, without what follows from these or repeats them."""
    superseded = {code for failure in snap.failures for code in (failure.code, *failure.type.supersedes)}
    # In a tie either may have made the mistake.
    blamed = ((failure, frozenset(failure.culprits) or failure.concerned) for failure in snap.failures)
    lines = {place for failure, ranks in blamed for place in failure.where if place[0] in ranks}
    rest = (
        finding
        for finding in _not_failures(snap)
        if finding.code not in superseded and not (finding.type.once_per_line and lines.issuperset(finding.where))
    )
    return sorted(rest, key=lambda finding: _ORDER[finding.severity])


def _not_failures(snap: Snapshot) -> list[Finding]:
    failures = {id(failure) for failure in snap.failures}
    return [finding for finding in snap.findings if id(finding) not in failures]
