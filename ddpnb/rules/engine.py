"""Asks the rules: causes before their effects, and each only where its facts are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pkgutil import walk_packages

import ddpnb.rules
from ddpnb.facts.snapshot import Snapshot
from ddpnb.model.findings import Finding
from ddpnb.rules.rule import FAILURE, RULES, Rule


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, in the order in which they are asked: after the codes that they name, else by code."""
    for package in walk_packages(ddpnb.rules.__path__, "ddpnb.rules."):
        if not package.name.endswith("__main__"):
            import_module(package.name)
    return in_order(RULES)


def of_package(name: str) -> tuple[Rule, ...]:
    """The rules of a package: ``"environment"``."""
    return tuple(rule for rule in rules() if rule.find.__module__.startswith(f"ddpnb.rules.{name}."))


def in_order(declared: Iterable[Rule]) -> tuple[Rule, ...]:
    """Rules after those whose codes they name in ``after`` or ``refines``, else by code.

    Raises:
        graphlib.CycleError: two rules are each to come after the other.
    """
    by_code = sorted(declared, key=lambda rule: (rule.codes, rule.find.__module__, rule.find.__qualname__))
    makes: dict[str, list[int]] = {}
    for number, rule in enumerate(by_code):
        for code in rule.codes:
            makes.setdefault(code, []).append(number)
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for number, rule in enumerate(by_code):
        before = (other for code in (*rule.after, *rule.refines) for other in makes.get(code, ()))
        sorter.add(number, *(other for other in before if other != number))
    sorter.prepare()
    return tuple(by_code[number] for number in _by_code(sorter))


def _by_code(sorter: TopologicalSorter[int]) -> Iterator[int]:
    """The order of a graph in which the lowest of those that may come next is always taken."""
    ready = list(sorter.get_ready())
    while ready:
        number = min(ready)
        ready.remove(number)
        yield number
        sorter.done(number)
        ready += sorter.get_ready()


def ask(snap: Snapshot, asked: Sequence[Rule]) -> list[Finding]:
    """What these rules find, with ``snap.failures`` known: in their order, those of one that refines in place of what it refines.

    Args:
        snap: what they see. ``snap.findings`` is what has been found so far.
        asked: in order.
    """
    snap.findings = list(snap.failures)
    final: set[int] = set()  # the identity of findings that are not refined again
    for rule in asked:
        if not _applies(snap, rule):
            continue
        known = {finding.type for finding in snap.findings[len(snap.failures) :]} if not rule.refines else set()
        for draft in rule.find(snap):
            finding = draft.finding(rule.kinds)
            if draft.instead is not None:
                place = next((n for n, one in enumerate(snap.findings) if one is draft.instead), None)
                if place is not None and id(draft.instead) not in final:
                    snap.findings[place] = finding
                    final.add(id(finding))
            elif finding.type not in known:
                snap.findings.append(finding)
    return snap.findings[len(snap.failures) :]


def _applies(snap: Snapshot, rule: Rule) -> bool:
    """Whether the facts that a rule needs are known, and neither a cause of what it finds nor nothing that it refines was found."""
    if not all(map(snap.knows, rule.needs)):
        return False
    if rule.refines and not snap.found(*rule.refines):
        return False
    if FAILURE in rule.after and snap.failures:
        return False
    return not any(finding.severity == "error" for finding in snap.found(*rule.after))
