"""One program for all live ranks: lines that they share, loops where lines repeat, conditions where ranks part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ddpnb.studies.reenactment.plan import Part, Plan, Step

_LONGEST_BODY = 12  # lines of a loop
_MATCH = {True: 4, False: 1}  # how much two steps that share a line speak for it: the same collective, another one


@dataclass
class Line:
    """One line: the step of each live rank that comes to it."""

    steps: dict[int, Step] = field(default_factory=dict[int, Step])

    @property
    def kind(self) -> tuple[str, int, str]:
        return next(iter(self.steps.values())).kind

    @property
    def ranks(self) -> frozenset[int]:
        return frozenset(self.steps)


@dataclass(frozen=True)
class Loop:
    """Lines that repeat. ``passes[i][j]``: line j in iteration i; ``times``: iterations of each live rank."""

    passes: tuple[tuple[Line | None, ...], ...]
    times: dict[int, int]

    @property
    def last_line(self) -> int:
        """How many lines its body has."""
        return len(self.passes[0])


Item = Line | Loop


def program_of(plan: Plan) -> list[Item]:
    """The calls of all live ranks as one program."""
    order = _Order(plan)
    lines: list[Line] = []
    for part in sorted(plan.parts, key=lambda part: (-len(part.steps), part.rank)):
        lines = _merged(lines, part, order)
    blocked = {part.rank for part in plan.parts if part.how == "blocked"}
    return _folded(lines, blocked, uneven=order.uneven or order.tied)


class _Order:
    """Which steps may share a line, and which line comes first."""

    def __init__(self, plan: Plan) -> None:
        finding = plan.expected
        self.uneven = finding is not None and finding.code == "DDP308"
        self.tied = plan.ordered and finding is not None and bool(finding.sides)  # none has passed the other's line
        self._in_sequence = plan.ordered
        culprits = finding.culprits if finding is not None else ()
        self._passed = {part.rank for part in plan.parts if part.original in culprits}  # the call that others wait in

    def shared(self, line: Line, step: Step) -> int:
        """How much speaks for a step on a line; 0: it is another one."""
        if line.kind != step.kind:
            return 0
        numbers = {one.seq for one in line.steps.values()}
        if step.seq not in numbers and not (self._in_sequence or self.uneven):
            return 0  # a decision parts the ranks: from there on each has lines of its own
        return _MATCH[any((one.group, one.seq) == (step.group, step.seq) for one in line.steps.values())]

    def before(self, rank: int, step: Step, line: Line) -> bool:
        """Whether a rank's own step comes before a line to which it does not come."""
        if not self._in_sequence:
            return False
        if self._passed:
            return rank not in self._passed and line.ranks <= self._passed
        file, number, _ = line.kind
        return step.site.file == file and 0 < step.site.line < number


def _merged(lines: Sequence[Line], part: Part, order: _Order) -> list[Line]:
    """Add the steps of a rank: to lines that it shares, else to lines of its own."""
    steps = part.steps
    rows, columns = len(lines), len(steps)
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for row in reversed(range(rows)):
        for column in reversed(range(columns)):
            shared = order.shared(lines[row], steps[column])
            best[row][column] = max(
                best[row + 1][column], best[row][column + 1], best[row + 1][column + 1] + shared if shared else 0
            )
    merged: list[Line] = []
    row = column = 0
    while row < rows or column < columns:
        shared = order.shared(lines[row], steps[column]) if row < rows and column < columns else 0
        if shared and best[row][column] == best[row + 1][column + 1] + shared:
            merged.append(Line({**lines[row].steps, part.rank: steps[column]}))
            row, column = row + 1, column + 1
        elif column == columns or (
            row < rows
            and best[row][column] == best[row + 1][column]
            and not (best[row][column] == best[row][column + 1] and order.before(part.rank, steps[column], lines[row]))
        ):
            merged.append(lines[row])
            row += 1
        else:
            merged.append(Line({part.rank: steps[column]}))
            column += 1
    return merged


def _folded(lines: Sequence[Line], blocked: set[int], *, uneven: bool) -> list[Item]:
    """The same lines, with loops where they repeat. ``uneven``: ranks that left a loop early are what is re-enacted."""
    found = _repetition(lines)
    if uneven and (found is None or found[2] < len(lines)):
        found = _begun_again(lines) or found
    if found is None:
        return list(lines)
    start, body, end = found
    if not uneven:
        end = _together(lines, start, body, end)
        if end - start < 2 * body:
            together = _together(lines, start, 1, end)
            rest = lines[together:]
            return [*lines[:together], *_folded(rest, blocked, uneven=uneven)] if together > start else list(lines)
    passes: list[tuple[Line | None, ...]] = []
    for first in range(start, end, body):
        iteration: list[Line | None] = [*lines[first : min(first + body, end)]]
        passes.append((*iteration, *[None] * (body - len(iteration))))
    inside = blocked & _last_in(lines[start:end], lines[end:])
    times = {
        rank: len(passes) if rank in inside else _iterations(passes, rank)
        for rank in _ranks(lines[start:end]) | _ranks(lines[end:])
    }
    before, after = (_folded(rest, blocked, uneven=uneven) for rest in (lines[:start], lines[end:]))
    return [*before, Loop(tuple(passes), times), *after]


def _together(lines: Sequence[Line], start: int, body: int, end: int) -> int:
    """The end of the last whole iteration before the ranks part."""
    first = [line.ranks for line in lines[start : start + body]]
    apart = next((place for place in range(start, end) if lines[place].ranks != first[(place - start) % body]), end)
    return start + (apart - start) // body * body


def _repetition(lines: Sequence[Line]) -> tuple[int, int, int] | None:
    """(first line, lines of the body, end) of the longest repetition; its last iteration may end early."""
    kinds = [line.kind for line in lines]
    best: tuple[int, int, int] | None = None
    most = 1
    for body in range(1, min(_LONGEST_BODY, len(lines) // 2) + 1):
        start = 0
        while start + body < len(lines):
            end = start + body
            while end < len(lines) and kinds[end] == kinds[end - body]:
                end += 1
            if end - start - body > most - (body == 1) and end - start >= 2 * body:
                if end < len(lines):  # only what ends the program may end within an iteration
                    end -= (end - start) % body
                if end - start >= 2 * body and end - start - body > most - (body == 1):
                    best, most = (start, body, end), end - start - body
            start = max(start + 1, end - body + 1)
    return best


def _begun_again(lines: Sequence[Line]) -> tuple[int, int, int] | None:
    """The same for a loop whose second iteration has only its first line: the last one of the program."""
    last = len(lines) - 1
    first = next((place for place in reversed(range(last)) if lines[place].kind == lines[last].kind), None)
    return None if first is None or last - first > _LONGEST_BODY else (first, last - first, last + 1)


def _iterations(passes: Sequence[Sequence[Line | None]], rank: int) -> int:
    """How many iterations a rank has begun."""
    return 1 + max(
        (i for i, lines in enumerate(passes) if any(line is not None and rank in line.steps for line in lines)),
        default=-1,
    )


def _last_in(inside: Iterable[Line], after: Iterable[Line]) -> frozenset[int]:
    """The ranks whose last step is in these lines, and none after them."""
    return _ranks(inside) - _ranks(after)


def _ranks(lines: Iterable[Line]) -> frozenset[int]:
    return frozenset[int]().union(*(line.ranks for line in lines))
