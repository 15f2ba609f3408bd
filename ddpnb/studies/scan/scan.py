"""Every collective of a project, and the conditions under which a rank reaches it.

Based on syntax trees alone: nothing is imported, nothing runs, and results are advice.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpnb.recording.calls import Site
from ddpnb.recording.source.expressions import shown
from ddpnb.recording.source.unwaited import Unwaited, unwaited
from ddpnb.studies.scan import vocabulary as words
from ddpnb.studies.scan.modules import Problem, Project, Scope
from ddpnb.studies.scan.operations import Operations
from ddpnb.studies.scan.ranks import Ranks
from ddpnb.studies.scan.walk import WAYS_OUT, Condition, Event, Walk, for_members

_MOST_SITES = 5000
_LONGEST_CHAIN = 12


@dataclass(frozen=True, slots=True)
class CollectiveSite:
    """A collective in the source, by one way that leads to it.

    Without ``via`` it is the call itself with the conditions of its own function. With it, a call in
    another function, under conditions that not all ranks need pass, leads here: ``via`` are the calls,
    outermost first, and ``conditions`` those of the outermost.
    """

    op: str
    site: Site
    conditions: tuple[Condition, ...] = ()
    via: tuple[Site, ...] = ()
    through: tuple[str, ...] = ()  # what is called at each place of ``via``
    text: str = ""
    last_line: int = 0

    @property
    def decisions(self) -> tuple[Condition, ...]:
        """The conditions that may let only some ranks pass, in line order."""
        if (
            self.op in words.P2P or self.op in words.ENDS
        ):  # only some ranks send and receive, and ends need not be joint
            return ()
        if self.op == "init_process_group" and self.via:
            return ()  # far away it is called once, by the first rank
        return tuple(condition for condition in self.conditions if condition.marked)

    @property
    def decision(self) -> Condition | None:
        """The last of ``decisions``."""
        return max(self.decisions, key=lambda condition: condition.line, default=None)

    @property
    def marked(self) -> bool:
        """Whether according to the source only some ranks get here."""
        return bool(self.decisions)

    def advice_on(self, condition: Condition) -> str:
        """What to do about one of the conditions."""
        if condition.kind in ("for", "while"):
            return (
                "Give all ranks equally many iterations (drop the rest, repeat samples, or stop at the smallest length), "
                "or use torch.distributed.algorithms.Join."
            )
        if condition.kind == "decorator":
            return "Move the collective out of the function that runs on one rank, and call it on all ranks."
        if condition.kind in WAYS_OUT:
            return f"Call it before line {condition.line}, or also on the ranks that leave there."
        if self.via:
            return (
                "Call the function that contains it on all ranks, and keep only rank-specific work (printing, writing) "
                "under the `if`."
            )
        return "Call it on all ranks: move it out of the `if`, before or after it."

    @property
    def places(self) -> tuple[Site, ...]:
        """The calls that lead here and the collective itself, outermost first."""
        return (*self.via, self.site)


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found. ``sites`` holds the marked ones first, then the order of files and lines."""

    sites: tuple[CollectiveSite, ...]
    files: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    unwaited: tuple[tuple[str, Unwaited], ...] = ()  # by file

    @property
    def marked(self) -> tuple[CollectiveSite, ...]:
        return tuple(site for site in self.sites if site.marked)

    @property
    def own(self) -> tuple[CollectiveSite, ...]:
        """Each collective of the source once."""
        return tuple(site for site in self.sites if not site.via)


def scan(sources: Mapping[str, str], entries: Sequence[str]) -> Scan:
    """Every collective of the entries and of the modules of ``sources`` that they import, directly or not.

    Args:
        sources: the texts of the project's files by path. Only paths at which an import may lie are
            asked for, so that it may read them from a disk when asked.
        entries: paths of the scripts.
    """
    project = Project(sources, entries)
    walks = _walks(project)
    sites: list[CollectiveSite] = []
    reached: dict[tuple[str, str], list[tuple[tuple[Walk, Event], ...]]] = {}
    for walk in walks.values():
        for event in walk.events:
            if event.op is not None:
                sites.append(_site(((walk, event),), event.conditions))
            elif event.called is not None and any(condition.marked for condition in event.conditions):
                if event.called.key not in reached:
                    reached[event.called.key] = _behind(event.called, walks)
                chains = [((walk, event), *chain) for chain in reached[event.called.key]]
                far = [_site(chain, for_members(chain[-1][1].node, event.conditions)) for chain in chains]
                sites += [site for site in far if site.marked]
        if len(sites) > _MOST_SITES:
            break
    order = {path: number for number, path in enumerate(project.modules)}
    sites.sort(key=lambda s: (not s.marked, order[s.places[0].file], s.places[0].line, len(s.via)))
    late = [
        (path, work)
        for path, module in project.modules.items()
        if any(word in module.source for word in ("async_op", "isend", "irecv"))
        for work in unwaited(module.source)
    ]
    return Scan(tuple(sites[:_MOST_SITES]), tuple(project.modules), tuple(project.problems), tuple(late))


def _walks(project: Project) -> dict[tuple[str, str], Walk]:
    """A walk through each function that makes a collective or calls one that does."""
    operations = Operations(project)
    ranks = Ranks(operations)
    walks: dict[tuple[str, str], Walk] = {}
    for scope in project.scopes():
        if operations.all_of(scope):
            try:
                walks[scope.key] = Walk(operations, ranks, scope)
            except RecursionError:
                project.problems.append(Problem(scope.path, 0, "nested too deeply"))
    return walks


def _behind(function: Scope, walks: Mapping[tuple[str, str], Walk]) -> list[tuple[tuple[Walk, Event], ...]]:
    """The collectives that a function makes, or those that it calls: each by its shortest chain of calls."""
    chains: dict[int, tuple[tuple[Walk, Event], ...]] = {}
    waiting: deque[tuple[Scope, tuple[tuple[Walk, Event], ...]]] = deque([(function, ())])
    seen = {function.key}
    while waiting and len(chains) < _MOST_SITES:
        scope, before = waiting.popleft()
        walk = walks.get(scope.key)
        if walk is None or len(before) >= _LONGEST_CHAIN:
            continue
        for event in walk.events:
            chain = (*before, (walk, event))
            if event.op is not None:
                chains.setdefault(id(event.node), chain)
            elif event.called is not None and event.called.key not in seen:
                seen.add(event.called.key)
                waiting.append((event.called, chain))
    return list(chains.values())


def _site(chain: Sequence[tuple[Walk, Event]], conditions: tuple[Condition, ...]) -> CollectiveSite:
    *via, (walk, event) = chain
    return CollectiveSite(
        event.op or "",
        _place(walk.scope, event.node),
        conditions,
        tuple(_place(caller.scope, step.node) for caller, step in via),
        tuple(_called(step) for _, step in via),
        shown(event.node),
        event.node.end_lineno or event.node.lineno,
    )


def _place(scope: Scope, node: ast.Call) -> Site:
    return Site(scope.path, node.lineno, scope.name.rpartition(".")[2] or "<module>")


def _called(event: Event) -> str:
    """``save()``, ``Trainer.save()``; without brackets if the function is only passed on."""
    if event.called is None:
        return ""
    owner, last = event.called.owner.rpartition(".")[2], event.called.name.rpartition(".")[2]
    name = owner if last == "__init__" else f"{owner}.{last}" if owner else last
    return name if event.handed_on else f"{name}()"
