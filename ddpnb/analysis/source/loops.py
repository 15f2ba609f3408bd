"""The loops around a line of the user's source, and what ends them on one rank before the others."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

from ddpnb.analysis.source import suspects
from ddpnb.analysis.source.branches import FUNCTIONS, LOOPS, path_of, span
from ddpnb.analysis.source.expressions import last_name, shown
from ddpnb.model.calls import Site
from ddpnb.model.recording import Recording

Loop = ast.For | ast.AsyncFor | ast.While
_OF_THE_MODEL = frozenset({"parameters", "named_parameters", "modules", "children", "buffers", "param_groups"})


def loops_of(source: str, line: int) -> list[Loop]:
    """The loops around ``line`` in its function, innermost first; a ``while`` holds its condition."""
    found: list[Loop] = []
    for node, arm in reversed(path_of(source, line)):
        if isinstance(node, FUNCTIONS) and arm == "body":
            break
        if isinstance(node, LOOPS) and (arm == "body" or (isinstance(node, ast.While) and not arm)):
            found.append(node)
    return found


def loop_around(source: str, line: int) -> tuple[int, int] | None:
    """First and last line of the innermost loop around ``line`` in its function."""
    loops = loops_of(source, line)
    return span(loops[0]) if loops else None


def loop_over(recording: Recording, site: Site) -> Site:
    """The header of the innermost ``for`` around a line that goes over more than a range; else the line itself."""
    for loop in loops_of(recording.sources.get(site.file, ""), site.line):
        if not isinstance(loop, ast.While) and not _plain_range(loop.iter):
            return replace(site, line=loop.lineno)
    return site


def over_entries(source: str, line: int) -> bool:
    """Whether the innermost loop around ``line`` goes over the entries of a dictionary: no round of it is a batch."""
    loop = next(iter(loops_of(source, line)), None)
    return isinstance(loop, (ast.For, ast.AsyncFor)) and any(
        isinstance(one, ast.Call) and not one.args and last_name(one.func) in ("items", "keys", "values")
        for one in ast.walk(loop.iter)
    )


def loop_returns(source: str, line: int) -> int | None:
    """The line of a ``return`` inside the loops around ``line`` (a way to leave early), if any."""
    for loop in loops_of(source, line):
        waiting = list(ast.iter_child_nodes(loop))
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Return):
                return node.lineno
            if not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
                waiting += ast.iter_child_nodes(node)
    return None


def ended_early(
    recording: Recording, path: Sequence[Site], even: Container[tuple[str, int]] = ()
) -> tuple[Site, str] | None:
    """What made a loop shorter on some ranks: the place, and why there.

    ``path``: the lines by which the ranks that are still in the loop came to their call, outermost
    first. The innermost loop whose rounds can differ counts; one over a constant range cannot, nor can those
    that were seen to be ``even`` (file, line).
    """
    for site in reversed(path):
        source = recording.sources.get(site.file, "")
        for loop in loops_of(source, site.line):
            if (site.file, loop.lineno) in even:
                continue
            found = _ends(source, loop)
            if found is not None:
                line, reason = found
                return replace(site, line=line), f"Line {line} {reason}."
    return None


def swallowed(recording: Recording, path: Sequence[Site]) -> tuple[Site, str] | None:
    """A handler inside a loop that lets a rank go on with the next round after an exception on ``path``."""
    for site in reversed(path):
        inside = path_of(recording.sources.get(site.file, ""), site.line)
        loops = [depth for depth, (node, arm) in enumerate(inside) if isinstance(node, LOOPS) and arm == "body"]
        for node, arm in inside[loops[-1] :] if loops else []:
            if not isinstance(node, ast.Try) or arm != "body":
                continue
            for handler in node.handlers:
                if not isinstance(handler.body[-1], (ast.Raise, ast.Break, ast.Return)):
                    kind = f" {shown(handler.type)}" if handler.type is not None else ""
                    return replace(
                        site, line=handler.lineno
                    ), f"Line {handler.lineno} goes on after an error: except{kind}."
    return None


def passed_over(recording: Recording, path: Sequence[Site]) -> tuple[Site, str] | None:
    """A ``continue`` under a condition that leaves out the rest of a round, with the call in it."""
    for site in reversed(path):
        for loop in loops_of(recording.sources.get(site.file, ""), site.line):
            before = [one for one in _jumps(loop, ast.Continue) if one[0] < site.line]
            if before:
                line, condition = before[-1]
                return replace(site, line=line), f"Line {line} goes on with the next round: continue, if {condition}."
    return None


def _ends(source: str, loop: Loop) -> tuple[int, str] | None:
    breaks = [(line, f"ends it: break, if {condition}") for line, condition in _jumps(loop, ast.Break)]
    known = {one.line: one for one in suspects.statements(source)}
    of_rank = [one for one in breaks if one[0] in known and known[one[0]].of_rank]
    if of_rank:
        return of_rank[0]
    if isinstance(loop, ast.While):
        if not isinstance(loop.test, ast.Constant):
            return loop.lineno, f"decides: while {shown(loop.test)}"
    elif not _constant(loop.iter) and (not breaks or not _plain_range(loop.iter)):
        names = {one.id for one in ast.walk(loop.iter) if isinstance(one, ast.Name)}
        made = [one for one in known.values() if one.of_rank and one.text.partition(" = ")[0] in names]
        told = f", and line {made[-1].line} makes that each rank's own" if made else ""
        return loop.lineno, f"decides: one round for each of {shown(loop.iter)}{told}"
    return breaks[0] if breaks else None


def _jumps(loop: Loop, kind: type[ast.Break | ast.Continue]) -> list[tuple[int, str]]:
    """Every ``break`` or ``continue`` of this loop that stands under a condition: its line, and the condition."""

    def visit(body: Sequence[ast.stmt], condition: str) -> Iterator[tuple[int, str]]:
        for one in body:
            if isinstance(one, kind) and condition:
                yield one.lineno, condition
            elif isinstance(one, ast.If):
                yield from visit(one.body, shown(one.test))
                yield from visit(one.orelse, f"not ({shown(one.test)})")
            elif isinstance(one, (ast.With, ast.AsyncWith)):
                yield from visit(one.body, condition)
            elif isinstance(one, ast.Try):
                yield from visit(one.body, condition)
                for handler in one.handlers:
                    yield from visit(handler.body, f"except {shown(handler.type) if handler.type else ''}".strip())

    return sorted(visit(loop.body, ""))


def _constant(node: ast.expr) -> bool:
    """Whether a loop over this has the same length wherever it runs: constants, parts of a model."""
    if isinstance(node, ast.Call):
        if last_name(node.func) in _OF_THE_MODEL or (
            last_name(node.func) in ("zip", "enumerate") and any(_constant(one) for one in node.args)
        ):
            return True
        return _plain_range(node) and all(isinstance(one, ast.Constant) for one in node.args)
    return isinstance(node, (ast.Constant, ast.List, ast.Tuple))


def _plain_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
