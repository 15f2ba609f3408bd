"""One frame of all ranks side by side: variables that differ are marked, counted and listed first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.render import as_html, markup, tensors
from ddpnb.render.document import Block, Cell, Drawn, Paragraph, Place, Table
from ddpnb.render.views.frame_variables import Row, SideBySide

NOTHING = (
    "No rank is running your code: while ranks run, hang or are held, the variables of their functions are shown here."
)
_ROWS = 40  # of a function, and of what is inside a variable
_RANKS = 16
_WIDEST = 60  # characters of a name or a value
_SAID = 400  # of a sentence
_CLASS = re.compile(r"<(?:\w{1,80}\.){1,12}(\w{1,80})>")
_DEPTH = 8
_NAMED = 8  # variables

#: what is inside a variable: its parts, a tensor in numbers, or why it cannot be read
Inside = SideBySide | tensors.Shown | str


def document(
    frames: SideBySide | None,
    inside: Mapping[str, Inside] | None = None,
    *,
    opens: bool = False,
    first: Sequence[int] = (),
    differing: bool = False,
) -> list[Block]:
    """The table, and the positions of ranks outside this function.

    Args:
        frames: the function, or one of its variables that was opened.
        inside: of variables that are open, by their paths, what is inside.
        opens: whether objects and tensors can be opened: buttons with the action ``open`` and a ``path``.
        first: ranks whose columns come first.
        differing: only what differs between ranks.
    """
    if frames is None:
        return [Paragraph(NOTHING, kind="faint")]
    ranks = list(frames.sites)
    shown = _columns(frames, ranks, first)
    rows = [] if frames.path else [_lines(frames, shown)]
    kept = replace(frames, rows=frames.differing) if differing else frames
    rows += _rows(kept, shown, inside or {}, opens=opens)
    notes = [f"rank {rank}: {where}" for rank, where in list(frames.absent.items())[:8]]
    notes += [f"{len(shown)} of {len(ranks)} ranks shown, differing ranks first"] if len(shown) < len(ranks) else []
    name = (frames.path or frames.function)[:_WIDEST]
    head = (name, *(f"rank {rank}" for rank in shown))
    table = Table(f"variables of {name} on each rank", head, rows, "mono values", _WIDEST)
    return [
        Paragraph(counted(frames)), *([table] if rows else []), *(Paragraph(note[:300], kind="faint") for note in notes)
    ]  # fmt: skip


def watched(
    values: SideBySide, inside: Mapping[str, Inside] | None = None, *, first: Sequence[int] = (), opens: bool = True
) -> list[Block]:
    """A table of expressions, as that of variables; a button ends each (the action ``unwatch`` with a ``path``)."""
    shown = _columns(values, list(values.sites), first)
    rows = list(_rows(values, shown, inside or {}, opens=opens, ends=True))
    head = ("expression", *(f"rank {rank}" for rank in shown))
    return [Table("watched expressions on each rank", head, rows, "mono values", _WIDEST)] if rows else []


def counted(frames: SideBySide) -> str:
    """``2 of 9 variables differ. Not compared by content: batch.``"""
    what, count, differing = "parts" if frames.path else "variables", len(frames.rows), len(frames.differing)
    if not count:
        return "There is nothing inside." if frames.path else "No variable of the function is known."
    if len(frames.sites) == 1:
        return f"Only rank {next(iter(frames.sites))} is in {frames.path or frames.function}: nothing is compared."
    if not differing:
        return f"No {what.removesuffix('s')} differs on {phrases.ranks(frames.sites)}{_uncompared(frames)}."
    return f"{differing} of {count} {what} {'differs' if differing == 1 else 'differ'}{_uncompared(frames)}."


def _uncompared(frames: SideBySide) -> str:
    """``; not compared by content: batch, model``: what is equal only as far as shapes and classes go."""
    names = [row.name[:_WIDEST] for row in frames.uncompared]
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return f"; not compared by content: {', '.join([*names[:_NAMED], *more])}" if names else ""


def _rows(
    frames: SideBySide,
    shown: list[int],
    inside: Mapping[str, Inside],
    *,
    opens: bool,
    ends: bool = False,
    path: str = "",
    depth: int = 0,
) -> Iterator[list[Cell]]:
    for row in frames.rows[:_ROWS]:
        here = f"{path or frames.path}{row.name}"
        part = inside.get(here)
        usual = next((value for value, _ in Counter(row.values.values()).most_common(1)), None)
        opened = opens and (row.opens or row.is_tensor) and depth < _DEPTH
        label = _button(row.name, here, part is not None) if opened else row.name
        yield [
            Cell((*((_end(row),) if ends else ()), label), row.differs, depth=depth),
            *(_cell(row.values.get(rank), usual, differs=row.differs) for rank in shown),
        ]
        if part is not None:
            yield from _opened(part, shown, inside, here, depth + 1)
    more = max(0, len(frames.rows) - _ROWS) + frames.more
    if more:
        yield [_said(f"and {more} more {'parts' if path or frames.path else 'variables'}", depth, shown)]


def _opened(
    part: Inside, shown: list[int], inside: Mapping[str, Inside], here: str, depth: int
) -> Iterator[list[Cell]]:
    """The rows below a variable that is open."""
    if isinstance(part, str):
        yield [_said(part[:_SAID], depth, shown)]
    elif not isinstance(part, SideBySide):
        numbers = Drawn(as_html.html(*tensors.document(part)), str(part))
        yield [Cell((numbers,), depth=depth, columns=len(shown) + 1)]
    elif part.rows:
        yield from _rows(part, shown, inside, opens=True, path=here, depth=depth)
    else:
        nothing = "nothing inside" if not part.absent else next(iter(part.absent.values()))
        yield [_said(nothing, depth, shown)]


def _columns(frames: SideBySide, ranks: list[int], first: Sequence[int] = ()) -> list[int]:
    """All ranks, those asked for first; of many, those with the rarest values."""
    asked = [rank for rank in dict.fromkeys(first) if rank in frames.sites]
    if len(ranks) <= _RANKS:
        return asked + [rank for rank in ranks if rank not in asked]
    rare = dict.fromkeys(ranks, 0)
    for row in frames.differing:
        counts = Counter(row.values.values())
        for rank in ranks:
            rare[rank] += counts[row.values.get(rank, "")]
    rarest = sorted(ranks, key=lambda rank: (rank not in asked, rare[rank], rank))[:_RANKS]
    return asked + sorted(rank for rank in rarest if rank not in asked)


def _lines(frames: SideBySide, shown: list[int]) -> list[Cell]:
    """The line at which each rank is, as a link."""
    counts = Counter(site.line for site in frames.sites.values())
    usual = counts.most_common(1)[0][0]
    sites = [frames.sites[rank] for rank in shown]
    return [
        Cell(("(line)",), len(counts) > 1),
        *(Cell((Place(site, str(site.line)),), site.line != usual) for site in sites),
    ]


def _button(name: str, path: str, is_open: bool) -> Drawn:
    given = {"type": "button", "class": "plain opens", "data-action": "open", "data-path": path}
    expanded = markup.attributes({**given, "aria-expanded": str(is_open).lower()})
    return Drawn(f"<button{expanded}>{markup.icon('go')}{markup.text(name, _WIDEST)}</button>", name)


def _end(row: Row) -> Drawn:
    given = {"type": "button", "class": "plain", "data-action": "unwatch", "data-path": row.name}
    label = {"aria-label": f"stop watching {row.name[:_WIDEST]}", "title": "stop watching"}
    return Drawn(f"<button{markup.attributes({**given, **label})}>{markup.icon('gone')}</button>")


def _said(text: str, depth: int, shown: list[int]) -> Cell:
    return Cell((text,), role="faint", depth=depth, columns=len(shown) + 1)


def _cell(value: str | None, usual: object, *, differs: bool) -> Cell:
    return (
        Cell(("not set",), role="faint")
        if value is None
        else Cell((_short(value),), differs and value != usual, hover=value)
    )


def _short(value: str) -> str:
    """Classes without their modules: ``<DistributedDataParallel>``. A column need not be wider than that."""
    return _CLASS.sub(r"<\1>", value)


def summary(frames: SideBySide | None) -> str:
    """What differs, in a sentence."""
    if frames is None:
        return "no rank is in the user's code."
    names = [row.name for row in frames.differing]
    if not names:
        return f"{frames.function}: no variable differs on {phrases.ranks(frames.sites)}{_uncompared(frames)}."
    return (
        f"{frames.function}: {', '.join(names[:8])} {'differs' if len(names) == 1 else 'differ'}{_uncompared(frames)}."
    )
