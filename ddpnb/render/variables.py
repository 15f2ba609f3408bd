"""One frame of all ranks side by side, as HTML and text: variables that differ are marked, counted and listed first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ddpnb.model import phrases
from ddpnb.render import markup
from ddpnb.render.terminal import table
from ddpnb.render.text import one_line
from ddpnb.views.frame_variables import Row, SideBySide

NOTHING = (
    "No rank is running your code: while ranks run, hang or are held, the variables of their functions are shown here."
)
_ROWS = 24  # of a function, and of what is inside a variable
_TEXT_ROWS = 40
_RANKS = 16
_WIDEST = 80
_CLASS = re.compile(r"<(?:\w{1,80}\.){1,12}(\w{1,80})>")
_DIFFERS = '<span class="unseen">differs: </span>≠ '
_WIDEST_TEXT = 60  # in a column of text
_DEPTH = 8


def variables(frames: SideBySide | None, inside: Mapping[str, SideBySide] | None = None, *, opens: bool = False) -> str:
    """The table, and the positions of ranks outside this function.

    Args:
        frames: the function, or one of its variables that was opened.
        inside: of variables that are open, by their paths, what is inside.
        opens: whether objects can be opened: buttons with the action ``open`` and a ``path``.
    """
    if frames is None:
        return f'<p class="faint">{NOTHING}</p>'
    ranks = list(frames.sites)
    shown = _columns(frames, ranks)
    rows = [] if frames.path else [_lines(frames, shown)]
    rows += _rows(frames, shown, inside or {}, opens=opens)
    notes = [f"rank {rank}: {where}" for rank, where in list(frames.absent.items())[:8]]
    notes += [f"{len(shown)} of {len(ranks)} ranks shown, differing ranks first"] if len(shown) < len(ranks) else []
    below = "".join(f'<p class="faint">{markup.text(note, 300)}</p>' for note in notes)
    name = frames.path or frames.function
    drawn = markup.table(f"variables of {name[:80]} on each rank", (name, *shown), rows, kind="mono values")
    return f"<p>{markup.text(counted(frames))}</p>{drawn}{below}"


def counted(frames: SideBySide) -> str:
    """``2 of 9 variables differ``."""
    what, count, differing = "parts" if frames.path else "variables", len(frames.rows), len(frames.differing)
    if not count:
        return "There is nothing inside." if frames.path else "The function has no variables yet."
    if not differing:
        who = f" on {phrases.ranks(frames.sites)}" if len(frames.sites) > 1 else ""
        return f"No {what.removesuffix('s')} differs{who}."
    return f"{differing} of {count} {what} {'differs' if differing == 1 else 'differ'}."


def _rows(
    frames: SideBySide,
    shown: list[int],
    inside: Mapping[str, SideBySide],
    *,
    opens: bool,
    path: str = "",
    depth: int = 0,
) -> Iterator[str]:
    for row in frames.rows[:_ROWS]:
        here = f"{path or frames.path}{row.name}"
        part = inside.get(here)
        button = (here, part is not None) if opens and row.opens and depth < _DEPTH else None
        yield _row(row.name, row.values, shown, differs=row.differs, depth=depth, button=button)
        if part is not None:
            yield from _rows(part, shown, inside, opens=opens, path=here, depth=depth + 1)
            if not part.rows:
                yield _said("nothing inside" if not part.absent else next(iter(part.absent.values())), depth + 1, shown)
    more = max(0, len(frames.rows) - _ROWS) + frames.more
    if more:
        yield _said(f"and {more} more {'parts' if path or frames.path else 'variables'}", depth, shown)


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


def _lines(frames: SideBySide, shown: list[int]) -> str:
    """The line at which each rank is, as a link."""
    counts = Counter(site.line for site in frames.sites.values())
    usual = counts.most_common(1)[0][0]
    mark = _DIFFERS if len(counts) > 1 else ""
    sites = [frames.sites[rank] for rank in shown]
    cells = [
        f"<td{markup.attributes({'class': None if site.line == usual else 'differs'})}>{markup.place(site, str(site.line))}</td>"
        for site in sites
    ]
    return f'<tr><th scope="row">{mark}line</th>{"".join(cells)}</tr>'


def _row(
    name: str,
    values: Mapping[int, str],
    shown: list[int],
    *,
    differs: bool,
    depth: int = 0,
    button: tuple[str, bool] | None = None,
) -> str:
    usual = next((value for value, _ in Counter(values.values()).most_common(1)), None)
    mark = _DIFFERS if differs else ""
    cells = "".join(_cell(values.get(rank), usual, differs=differs) for rank in shown)
    label = markup.text(name, 60)
    if button is not None:
        path, is_open = button
        given = markup.attributes(
            {
                "type": "button",
                "class": "plain opens",
                "data-action": "open",
                "data-path": path,
                "aria-expanded": str(is_open).lower(),
            }
        )
        label = f"<button{given}>{markup.icon('go')}{label}</button>"
    indent = f' style="padding-left: {10 + 16 * depth}px"' if depth else ""
    return f'<tr><th scope="row"{indent}>{mark}{label}</th>{cells}</tr>'


def _said(text: str, depth: int, shown: list[int]) -> str:
    given = markup.attributes(
        {"class": "faint", "colspan": len(shown) + 1, "style": f"padding-left: {10 + 16 * depth}px"}
    )
    return f"<tr><td{given}>{markup.text(text, 300)}</td></tr>"


def _cell(value: str | None, usual: object, *, differs: bool) -> str:
    if value is None:
        return '<td class="faint">not set</td>'
    kind = ' class="differs"' if differs and value != usual else ""
    return f'<td{kind} title="{markup.text(value, 400)}">{markup.text(_short(value), _WIDEST)}</td>'


def _short(value: str) -> str:
    """Classes without their modules: ``<DistributedDataParallel>``. A column need not be wider than that."""
    return _CLASS.sub(r"<\1>", value)


def summary(frames: SideBySide | None) -> str:
    """What differs, in a sentence."""
    if frames is None:
        return "no rank is in the user's code."
    names = [row.name for row in frames.differing]
    if not names:
        return f"{frames.function}: no variable differs on {phrases.ranks(frames.sites)}."
    return f"{frames.function}: {', '.join(names[:8])} {'differs' if len(names) == 1 else 'differ'}."


def text(frames: SideBySide | None) -> str:
    """The same as ``variables`` as plain text."""
    if frames is None:
        return NOTHING
    ranks = list(frames.sites)
    rows = [["", one_line(frames.path or frames.function, _WIDEST_TEXT), *(f"rank {rank}" for rank in ranks)]]
    if not frames.path:
        mark = "≠" if len({site.line for site in frames.sites.values()}) > 1 else ""
        rows.append([mark, "(line)", *(str(frames.sites[rank].line) for rank in ranks)])
    rows += [_text_row(row, ranks) for row in frames.rows[:_TEXT_ROWS]]
    notes = [f"rank {rank}: {one_line(where)}" for rank, where in frames.absent.items()]
    more = max(0, len(frames.rows) - _TEXT_ROWS) + frames.more
    notes += [f"and {more} more {'parts' if frames.path else 'variables'}"] if more else []
    return "\n".join([counted(frames), *([table(rows)] if len(rows) > 1 else []), *notes])


def _text_row(row: Row, ranks: list[int]) -> list[str]:
    values = [one_line(_short(row.values.get(rank, "(not set)")), _WIDEST_TEXT) for rank in ranks]
    return ["≠" if row.differs else "", one_line(row.name, _WIDEST_TEXT), *values]
