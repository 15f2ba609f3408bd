"""One frame of all ranks side by side: variables that differ are marked, counted and listed first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ddpnb.recording import phrases
from ddpnb.render import markup
from ddpnb.render.document import Block, Cell, Drawn, Paragraph, Place, Table
from ddpnb.render.views.frame_variables import SideBySide

NOTHING = (
    "No rank is running your code: while ranks run, hang or are held, the variables of their functions are shown here."
)
_ROWS = 40  # of a function, and of what is inside a variable
_RANKS = 16
_WIDEST = 60  # characters of a name or a value
_CLASS = re.compile(r"<(?:\w{1,80}\.){1,12}(\w{1,80})>")
_DEPTH = 8
_NAMED = 8  # variables


def document(
    frames: SideBySide | None, inside: Mapping[str, SideBySide] | None = None, *, opens: bool = False
) -> list[Block]:
    """The table, and the positions of ranks outside this function.

    Args:
        frames: the function, or one of its variables that was opened.
        inside: of variables that are open, by their paths, what is inside.
        opens: whether objects can be opened: buttons with the action ``open`` and a ``path``.
    """
    if frames is None:
        return [Paragraph(NOTHING, kind="faint")]
    ranks = list(frames.sites)
    shown = _columns(frames, ranks)
    rows = [] if frames.path else [_lines(frames, shown)]
    rows += _rows(frames, shown, inside or {}, opens=opens)
    notes = [f"rank {rank}: {where}" for rank, where in list(frames.absent.items())[:8]]
    notes += [f"{len(shown)} of {len(ranks)} ranks shown, differing ranks first"] if len(shown) < len(ranks) else []
    name = (frames.path or frames.function)[:_WIDEST]
    head = (name, *(f"rank {rank}" for rank in shown))
    table = Table(f"variables of {name} on each rank", head, rows, "mono values", _WIDEST)
    return [
        Paragraph(counted(frames)), *([table] if rows else []), *(Paragraph(note[:300], kind="faint") for note in notes)
    ]  # fmt: skip


def counted(frames: SideBySide) -> str:
    """``2 of 9 variables differ. Not compared by content: batch.``"""
    what, count, differing = "parts" if frames.path else "variables", len(frames.rows), len(frames.differing)
    if not count:
        return "There is nothing inside." if frames.path else "The function has no variables yet."
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
    inside: Mapping[str, SideBySide],
    *,
    opens: bool,
    path: str = "",
    depth: int = 0,
) -> Iterator[list[Cell]]:
    for row in frames.rows[:_ROWS]:
        here = f"{path or frames.path}{row.name}"
        part = inside.get(here)
        usual = next((value for value, _ in Counter(row.values.values()).most_common(1)), None)
        opened = opens and row.opens and depth < _DEPTH
        label = _button(row.name, here, part is not None) if opened else row.name
        yield [
            Cell((label,), row.differs, depth=depth),
            *(_cell(row.values.get(rank), usual, differs=row.differs) for rank in shown),
        ]
        if part is not None:
            yield from _rows(part, shown, inside, opens=opens, path=here, depth=depth + 1)
            if not part.rows:
                nothing = "nothing inside" if not part.absent else next(iter(part.absent.values()))
                yield [_said(nothing, depth + 1, shown)]
    more = max(0, len(frames.rows) - _ROWS) + frames.more
    if more:
        yield [_said(f"and {more} more {'parts' if path or frames.path else 'variables'}", depth, shown)]


def _columns(frames: SideBySide, ranks: list[int]) -> list[int]:
    """All ranks; of many, those with the rarest values."""
    if len(ranks) <= _RANKS:
        return ranks
    rare = dict.fromkeys(ranks, 0)
    for row in frames.differing:
        counts = Counter(row.values.values())
        for rank in ranks:
            rare[rank] += counts[row.values.get(rank, "")]
    return sorted(sorted(ranks, key=lambda rank: (rare[rank], rank))[:_RANKS])


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
