"""Every collective of a project, and the conditions under which a rank reaches it.

Based on syntax trees alone: nothing is imported, nothing runs, and results are advice.
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
        (path, work)
        for path, module in project.modules.items()
        if "async_op" in module.source or "isend" in module.source or "irecv" in module.source
        for work in unwaited(module.source)
    ]
    return Scan(tuple(_sites(reading)), tuple(project.modules), tuple(project.problems), tuple(late))


def _sites(reading: Reading) -> list[CollectiveSite]:
    sites: list[CollectiveSite] = []
    by_scope = {walk.scope.key: walk for walk in reading.walks}
    for walk in reading.walks:
        for event in walk.events.values():
            if event.op is not None:
                sites.append(_site(walk, event, event.conditions))
            elif event.called is not None and any(condition.doubt != "none" for condition in event.conditions):
                sites += _beyond(walk, event, by_scope)
        if len(sites) > _MOST_SITES:
            break
    ways: dict[tuple[str, int], set[str]] = {}
    for site in sites:
        decision = site.decision
        if decision is not None and site.op not in words.SETUP:
            way = "on" if decision.kind in ("if", "case", "and") else "past"
            ways.setdefault((decision.file, decision.line), set()).add(way)
    both = {place for place, kinds in ways.items() if len(kinds) > 1}
    for index, site in enumerate(sites):
        if (decision := site.decision) and (decision.file, decision.line) in both:
            sites[index] = replace(site, both_arms=True)
    order = {path: number for number, path in enumerate(reading.project.modules)}
    sites.sort(key=lambda s: (DOUBTS.index(s.doubt), order[s.places[0].file], s.places[0].line, len(s.via)))
    return sites[:_MOST_SITES]


def _site(
    walk: Walk, event: Event, conditions: tuple[Condition, ...], via: Sequence[tuple[Walk, Event]] = ()
) -> CollectiveSite:
    return CollectiveSite(
        event.op or "",
        _place(walk.scope, event.node),
        conditions,
        tuple(_place(caller.scope, step.node) for caller, step in via),
        tuple(_called(step) for _, step in via),
        shown(event.node),
        event.node.end_lineno or event.node.lineno,
    )


def _place(scope: Scope, node: ast.AST) -> Site:
    return Site(scope.path, getattr(node, "lineno", 0), scope.name.rpartition(".")[2] or "<module>")


def _called(event: Event) -> str:
    """``save()``, ``Trainer.save()``; without brackets if the function is only passed on."""
    if event.called is None:
        return ""
    owner = event.called.owner.rpartition(".")[2]
    last = event.called.name.rpartition(".")[2]
    name = owner if last == "__init__" else f"{owner}.{last}" if owner else last
    return name if event.handed_on else f"{name}()"


def _beyond(walk: Walk, event: Event, walks: Mapping[tuple[str, str], Walk]) -> list[CollectiveSite]:
    """The collectives behind a call, each by the shortest chain of calls."""
    sites: list[CollectiveSite] = []
    seen: set[tuple[tuple[str, str], str]] = set()
    waiting: deque[tuple[tuple[tuple[Walk, Event], ...], dict[str, ast.expr]]] = deque()
    waiting.append((((walk, event),), walk.constants(event, {})))
    while waiting and len(sites) < _MOST_SITES:
        chain, given = waiting.popleft()
        called = chain[-1][1].called
        inner = walks.get(called.key) if called is not None else None
        if inner is None or len(chain) > _LONGEST_CHAIN:
            continue
        as_called = (inner.scope.key, str({name: ast.dump(value) for name, value in given.items()}))
        if as_called in seen:
            continue
        seen.add(as_called)
        for inner_event in inner.events.values():
            if not inner.possible(inner_event, given):
                continue
            if inner_event.op is not None:
                sites.append(_site(inner, inner_event, _for_members(inner_event, event.conditions, given), chain))
            else:
                waiting.append(((*chain, (inner, inner_event)), inner.constants(inner_event, given)))
    shortest: dict[Site, CollectiveSite] = {}
    for site in sites:
        shortest.setdefault(site.site, site)
    return [site for site in shortest.values() if site.marked]


def _for_members(
    event: Event, conditions: tuple[Condition, ...], given: Mapping[str, ast.expr]
) -> tuple[Condition, ...]:
    """A collective of a group passed as an argument: presumably only its members call it."""
    group = group_of(event.node)
    if group is None or (isinstance(group, ast.Name) and group.id in given):  # barrier(group=None)
        return conditions
    return tuple(
        replace(condition, matched=True) if condition.doubt == "strong" else condition for condition in conditions
    )
