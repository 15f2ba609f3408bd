"""One frame of all ranks side by side, as HTML: variables that differ are marked and listed first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ddpnb.model import phrases
from ddpnb.render import markup
from ddpnb.views.frame_variables import SideBySide

_ROWS = 24
_RANKS = 16
_WIDEST = 80
_DIFFERS = '<span class="unseen">differs: </span>≠ '


def variables(frames: SideBySide | None) -> str:
    """The table, and the positions of ranks outside this function."""
    if frames is None:
        return '<p class="faint">No rank is in the user\'s code.</p>'
    ranks = list(frames.sites)
    shown = _columns(frames, ranks)
    rows = [_lines(frames, shown)]
    rows += [_row(row.name, row.values, shown, differs=row.differs) for row in frames.rows[:_ROWS]]
    notes = [f"rank {rank}: {where}" for rank, where in list(frames.absent.items())[:8]]
    notes += [f"and {len(frames.rows) - _ROWS} more variables"] if len(frames.rows) > _ROWS else []
    notes += [f"{len(shown)} of {len(ranks)} ranks shown, differing ranks first"] if len(shown) < len(ranks) else []
    below = "".join(f'<p class="faint">{markup.text(note, 300)}</p>' for note in notes)
    return markup.table(f"variables of {frames.function[:80]} on each rank", (frames.function, *shown), rows) + below


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


def _row(name: str, values: Mapping[int, str], shown: list[int], *, differs: bool) -> str:
    usual = next((value for value, _ in Counter(values.values()).most_common(1)), None)
    mark = _DIFFERS if differs else ""
    cells = "".join(_cell(values.get(rank), usual, differs=differs) for rank in shown)
    return f'<tr><th scope="row">{mark}{markup.text(name, 60)}</th>{cells}</tr>'


def _cell(value: str | None, usual: object, *, differs: bool) -> str:
    if value is None:
        return '<td class="faint">not set</td>'
    kind = ' class="differs"' if differs and value != usual else ""
    return f'<td{kind} title="{markup.text(value, 400)}">{markup.text(value, _WIDEST)}</td>'


def summary(frames: SideBySide | None) -> str:
    """What differs, in a sentence."""
    if frames is None:
        return "no rank is in the user's code."
    names = [row.name for row in frames.differing]
    if not names:
        return f"{frames.function}: no variable differs on {phrases.ranks(frames.sites)}."
    return f"{frames.function}: {', '.join(names[:8])} {'differs' if len(names) == 1 else 'differ'}."
