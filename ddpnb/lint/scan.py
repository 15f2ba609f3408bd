"""Every collective of a project, and what decides whether a rank comes to it.

By the syntax trees alone: nothing is imported and nothing runs, so what is said here is advice.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ddpnb.lint import vocabulary as words
from ddpnb.lint.calling import Event
from ddpnb.lint.conditions import Condition
from ddpnb.lint.modules import Problem, Project
from ddpnb.lint.operations import group_of
from ddpnb.lint.reading import Reading
from ddpnb.lint.scopes import Scope
from ddpnb.lint.sites import DOUBTS, CollectiveSite, Scan
from ddpnb.lint.tally import Counted, Tally, joined, tally
from ddpnb.lint.unwaited import unwaited
from ddpnb.lint.walk import Walk
from ddpnb.model.calls import Site
from ddpnb.source.expressions import shown

__all__ = ["CollectiveSite", "Condition", "Counted", "Problem", "Scan", "Tally", "joined", "scan", "tally"]
_MOST_SITES = 5000
_LONGEST_CHAIN = 12


def scan(sources: Mapping[str, str], entries: Sequence[str]) -> Scan:
    """Every collective of the entries and of the modules of ``sources`` that they import, directly or not.

    Args:
        sources: the texts of the project's files by path. Only paths at which an import may lie are
            asked for, so that it may read them from a disk when asked.
        entries: paths of the scripts.
    """
    project = Project(sources, entries)
    reading = Reading(project)
    late = [
        (path, one)
        for path, module in project.modules.items()
        if "async_op" in module.source or "isend" in module.source or "irecv" in module.source
        for one in unwaited(module.source)
    ]
    return Scan(tuple(_sites(reading)), tuple(project.modules), tuple(project.problems), tuple(late))


def _sites(reading: Reading) -> list[CollectiveSite]:
    found: list[CollectiveSite] = []
    by_scope = {walk.scope.key: walk for walk in reading.walks}
    for walk in reading.walks:
        for event in walk.events.values():
            if event.op is not None:
                found.append(_site(walk, event, event.conditions))
            elif event.called is not None and any(one.doubt != "none" for one in event.conditions):
                found += _beyond(walk, event, by_scope)
        if len(found) > _MOST_SITES:
            break
    ways: dict[tuple[str, int], set[str]] = {}
    for site in found:
        one = site.decision
        if one is not None and site.op not in words.SETUP:
            ways.setdefault((one.file, one.line), set()).add("on" if one.kind in ("if", "case", "and") else "past")
    both = {place for place, kinds in ways.items() if len(kinds) > 1}
    found = [
        replace(site, both_arms=True) if (one := site.decision) and (one.file, one.line) in both else site
        for site in found
    ]
    order = {path: number for number, path in enumerate(reading.project.modules)}
    found.sort(key=lambda one: (DOUBTS.index(one.doubt), order[one.places[0].file], one.places[0].line, len(one.via)))
    return found[:_MOST_SITES]


def _site(
    walk: Walk, event: Event, conditions: tuple[Condition, ...], via: Sequence[tuple[Walk, Event]] = ()
) -> CollectiveSite:
    return CollectiveSite(
        event.op or "",
        _place(walk.scope, event.node),
        conditions,
        tuple(_place(one.scope, step.node) for one, step in via),
        tuple(_called(step) for _, step in via),
        shown(event.node),
        event.node.end_lineno or event.node.lineno,
    )


def _place(scope: Scope, node: ast.AST) -> Site:
    return Site(scope.path, getattr(node, "lineno", 0), scope.name.rpartition(".")[2] or "<module>")


def _called(event: Event) -> str:
    """``save()``, ``Trainer.save()``; without brackets if the function is only handed on."""
    if event.called is None:
        return ""
    owner = event.called.owner.rpartition(".")[2]
    last = event.called.name.rpartition(".")[2]
    name = owner if last == "__init__" else f"{owner}.{last}" if owner else last
    return name if event.handed_on else f"{name}()"


def _beyond(walk: Walk, event: Event, walks: Mapping[tuple[str, str], Walk]) -> list[CollectiveSite]:
    """The collectives behind a call, each by the shortest chain of calls."""
    found: list[CollectiveSite] = []
    seen: set[tuple[tuple[str, str], str]] = set()
    waiting: deque[tuple[tuple[tuple[Walk, Event], ...], dict[str, ast.expr]]] = deque()
    waiting.append((((walk, event),), walk.constants(event, {})))
    while waiting and len(found) < _MOST_SITES:
        chain, given = waiting.popleft()
        called = chain[-1][1].called
        inner = walks.get(called.key) if called is not None else None
        if inner is None or len(chain) > _LONGEST_CHAIN:
            continue
        as_called = (inner.scope.key, str({name: ast.dump(one) for name, one in given.items()}))
        if as_called in seen:
            continue
        seen.add(as_called)
        for one in inner.events.values():
            if not inner.possible(one, given):
                continue
            if one.op is not None:
                found.append(_site(inner, one, _for_members(one, event.conditions, given), chain))
            else:
                waiting.append(((*chain, (inner, one)), inner.constants(one, given)))
    shortest: dict[Site, CollectiveSite] = {}
    for one in found:
        shortest.setdefault(one.site, one)
    found = list(shortest.values())
    return [one for one in found if one.marked]


def _for_members(
    event: Event, conditions: tuple[Condition, ...], given: Mapping[str, ast.expr]
) -> tuple[Condition, ...]:
    """A collective of a group passed as an argument: presumably only its members call it."""
    group = group_of(event.node)
    if group is None or (isinstance(group, ast.Name) and group.id in given):  # barrier(group=None)
        return conditions
    return tuple(replace(one, matched=True) if one.doubt == "strong" else one for one in conditions)
