"""Every collective of a project, and what decides whether a rank comes to it.

By the syntax trees alone: nothing is imported and nothing runs, so what is said here is advice.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ddpnb.analysis import vocabulary as words
from ddpnb.analysis.calling import Event
from ddpnb.analysis.conditions import Condition, Doubt
from ddpnb.analysis.expressions import shown
from ddpnb.analysis.modules import Problem, Project, Scope
from ddpnb.analysis.operations import group_of
from ddpnb.analysis.reading import Reading
from ddpnb.analysis.walk import Walk
from ddpnb.model.calls import Site

__all__ = [
    "CollectiveSite", "Condition", "Counted", "Problem", "Scan", "joined", "rank_conditions",
    "rank_dependent_lines", "scan",
]  # fmt: skip
_MOST_SITES = 5000
_LONGEST_CHAIN = 12
_ORDER: tuple[Doubt, ...] = ("strong", "weak", "none")


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
    def decision(self) -> Condition | None:
        """The condition that is surest to let only some ranks pass."""
        found = [one for one in self.conditions if self._doubt_of(one) != "none"]
        return min(found, key=lambda one: (_ORDER.index(self._doubt_of(one)), -one.line), default=None)

    @property
    def doubt(self) -> Doubt:
        """``strong``: by the source only some ranks come here; ``weak``: it may happen; ``none``."""
        found = self.decision
        return self._doubt_of(found) if found is not None else "none"

    def _doubt_of(self, condition: Condition) -> Doubt:
        doubt = condition.doubt
        if self.op in words.P2P:  # sends and receives are for some ranks by nature
            return "none"
        if self.op in words.ENDS:
            return "weak" if doubt == "strong" and condition.cause == "rank" else "none"
        if self.op == "init_process_group" and (condition.cause != "rank" or self.via):
            return "none"  # far away it is made once, by whoever comes first
        return doubt

    @property
    def marked(self) -> bool:
        return self.doubt != "none"

    @property
    def reason(self) -> str:
        """Why it is marked, in plain words."""
        found = self.decision
        return found.reason if found is not None else ""

    @property
    def advice(self) -> str:
        """What to do about it."""
        found = self.decision
        return _advice(found, bool(self.via)) if found is not None else ""

    @property
    def places(self) -> tuple[Site, ...]:
        """The calls that lead here and the collective itself, outermost first."""
        return (*self.via, self.site)


def _advice(one: Condition, far: bool) -> str:
    what = "the function that makes it" if far else "it"
    if one.kind in ("if", "else", "case", "and") and one.cause == "rank":
        return (
            f"Let every rank call {what}, and keep under the `if` only the work of one rank (printing, writing)."
            if far
            else "Let every rank make it: move it out of the `if`, before it or behind it."
        )
    if one.kind == "decorator":
        return "Take the collective out of the function that runs on one rank, and let every rank make it."
    if one.kind in ("return", "continue", "break", "raise") and one.cause == "rank":
        return f"Make it before line {one.line}, or let the ranks that leave there make it too."
    if one.cause in ("shard", "stream"):
        return (
            "Give every rank equally many rounds (drop the rest, repeat samples, or count to the smallest length), "
            "or use torch.distributed.algorithms.Join."
        )
    if one.cause == "failure":
        return "Let the exception end the rank, or tell the others: agree on a flag (all_reduce) before going on."
    if one.kind in ("for", "while") and one.cause == "rank":
        return "Give every rank equally many rounds."
    if one.cause == "files":
        return "Let one rank look, and broadcast what it saw before anybody decides."
    if one.cause in ("clock", "random", "memory"):
        return "Let one rank decide and broadcast the decision, or agree on it with all_reduce."
    return "Reduce the value, or a flag made of it, over all ranks (all_reduce) before anybody decides by it."


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found. ``sites`` holds the surest doubts first, then the order of files and lines."""

    sites: tuple[CollectiveSite, ...]
    files: tuple[str, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def marked(self) -> tuple[CollectiveSite, ...]:
        return tuple(one for one in self.sites if one.marked)

    @property
    def own(self) -> tuple[CollectiveSite, ...]:
        """Each collective of the source once."""
        return tuple(one for one in self.sites if not one.via)


def scan(sources: Mapping[str, str], entries: Sequence[str]) -> Scan:
    """Every collective of the entries and of the modules of ``sources`` that they import, directly or not.

    Args:
        sources: the texts of the project's files by path. Only paths at which an import may lie are
            asked for, so that it may read them from a disk when asked.
        entries: paths of the scripts.
    """
    project = Project(sources, entries)
    reading = Reading(project)
    sites = _sites(reading)
    return Scan(tuple(sites), tuple(project.modules), tuple(project.problems))


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
    order = {path: number for number, path in enumerate(reading.project.modules)}
    found.sort(key=lambda one: (_ORDER.index(one.doubt), order[one.places[0].file], one.places[0].line, len(one.via)))
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
    name = event.called.name.removesuffix(".__init__") if event.called is not None else ""
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
    """A collective of a group that it is given: who calls it decides by membership, as far as one can tell."""
    group = group_of(event.node)
    if group is None or (isinstance(group, ast.Name) and group.id in given):  # barrier(group=None)
        return conditions
    return tuple(replace(one, matched=True) if one.doubt == "strong" else one for one in conditions)


# -- one file


@lru_cache(maxsize=16)
def _alone(source: str) -> Reading:
    return Reading(Project({"<source>": source}, ["<source>"]), whole=True)


def rank_conditions(source: str, line: int) -> tuple[Condition, ...]:
    """What decides, from rank to rank, whether ``line`` of this file runs; empty if nothing does."""
    best: tuple[int, int] | None = None
    found: tuple[Condition, ...] = ()
    for walk in _alone(source).walks:
        for statement, conditions in walk.statements.values():
            first, last = _header(statement)
            if first <= line <= last and (best is None or (-first, last) < best):
                best, found = (-first, last), conditions
    return tuple(one for one in found if one.depends_on_rank)


def rank_dependent_lines(source: str, first: int, last: int) -> list[tuple[int, str]]:
    """The statements from line ``first`` to ``last`` that run only on some ranks, since the rank decides."""
    lines = source.splitlines()
    found: dict[int, str] = {}
    for walk in _alone(source).walks:
        for statement, conditions in walk.statements.values():
            simple = not isinstance(statement, _COMPOUND)
            by_rank = any(one.cause == "rank" and one.kind != "raise" for one in conditions)
            within = first <= statement.lineno <= last and statement.lineno <= len(lines)
            if simple and within and by_rank and not isinstance(statement, _NOTHING):
                found[statement.lineno] = lines[statement.lineno - 1].strip()
        for event in walk.events.values():  # rank == 0 and save()
            short = any(one.cause == "rank" and one.kind == "and" for one in event.conditions)
            if short and first <= event.node.lineno <= last:
                found.setdefault(event.node.lineno, lines[event.node.lineno - 1].strip())
    return sorted(found.items())


_COMPOUND = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
)  # fmt: skip
_NOTHING = (ast.Pass, ast.Continue, ast.Break, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)


def _header(statement: ast.stmt) -> tuple[int, int]:
    """The lines of a statement that run where it stands: a compound one's up to its body."""
    last = statement.end_lineno or statement.lineno
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if body:
        inner = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
        last = max(statement.lineno, inner.lineno - 1)
    return statement.lineno, last


# -- counts of a run

Place = Site | tuple[str, int]


@dataclass(frozen=True, slots=True)
class Counted:
    """How often each rank made the calls of one place."""

    file: str
    line: int
    op: str
    counts: tuple[tuple[int, int], ...]  # (rank, how often); ranks that are not concerned are left out
    unequal: bool
    sites: tuple[CollectiveSite, ...] = ()  # empty: the source does not show it (a wrapper's own)


def joined(
    sites: Iterable[CollectiveSite],
    counts: Mapping[int, Mapping[Place, int]],
    members: Mapping[Place, Collection[int]] | None = None,
) -> list[Counted]:
    """The scan's collectives with how often each rank made them; unequal ones first.

    Args:
        sites: of a scan.
        counts: for each rank, how often it made a call at each place.
        members: the ranks of the groups that were used at a place, where those are not all.
    """
    concerned = {_pair(place): set(ranks) for place, ranks in (members or {}).items()}
    seen: dict[tuple[str, int], dict[int, int]] = {}
    for rank, places in counts.items():
        for place, count in places.items():
            row = seen.setdefault(_pair(place), {})
            row[rank] = row.get(rank, 0) + count
    by_place: dict[tuple[str, int], list[CollectiveSite]] = {}
    for one in sites:
        by_place.setdefault((one.site.file, one.site.line), []).append(one)
    rows: list[Counted] = []
    for (file, line), own in by_place.items():
        last = max(one.last_line for one in own) or line
        here = [pair for pair in seen if line <= pair[1] <= last and _same_file(pair[0], file)]
        total: dict[int, int] = {}
        ranks: set[int] = set()
        for pair in here:
            ranks |= concerned.get(pair, set(counts))
            for rank, count in seen.pop(pair).items():
                total[rank] = total.get(rank, 0) + count
        rows.append(_counted(file, line, own, total, ranks or set(counts)))
    rows += [_counted(pair[0], pair[1], [], row, concerned.get(pair, set(counts))) for pair, row in seen.items()]
    return sorted(rows, key=lambda row: (not row.unequal, not row.sites, row.file, row.line))


def _counted(file: str, line: int, sites: list[CollectiveSite], row: dict[int, int], ranks: set[int]) -> Counted:
    counts = tuple((rank, row.get(rank, 0)) for rank in sorted(ranks | set(row)))
    ops = sorted({one.op for one in sites})
    free = all(op in words.P2P for op in ops) if ops else False
    # A root and the others may make one collective from two lines.
    matched = any(one.matched for site in sites if not site.via for one in site.conditions)
    unequal = not free and not matched and len({count for _, count in counts}) > 1
    return Counted(file, line, ", ".join(ops), counts, unequal, tuple(sites))


def _pair(place: Place) -> tuple[str, int]:
    return (place.file, place.line) if isinstance(place, Site) else (place[0], place[1])


def _same_file(one: str, other: str) -> bool:
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")
