"""What the ranks are doing, and their variables side by side, as rows; rows as HTML."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.render import markup
from ddpnb.render.rank_states import LOOKS
from ddpnb.render.text import one_line
from ddpnb.views.status import RankStatus

_WIDEST = 60  # characters of a value in a column


def html_table(rows: Sequence[Sequence[str]], label: str, marked: Sequence[bool] = ()) -> str:
    """A table for a notebook, with its style sheet."""
    return markup.standalone(table(rows, label, marked), label)


def table(rows: Sequence[Sequence[str]], label: str, marked: Sequence[bool] = ()) -> str:
    """A table in HTML, the first row its head; everything is escaped."""
    body = (
        f"<tr{_MARK if marked and marked[number] else ''}>{''.join(f'<td>{markup.text(cell)}</td>' for cell in row)}</tr>"
        for number, row in enumerate(rows[1:])
    )
    return markup.table(label, rows[0], body)


_MARK = ' style="font-weight:600"'


def status_rows(ranks: Sequence[RankStatus]) -> list[list[str]]:
    """A row per rank, after a head; with the checkpoints, if a rank passed one."""
    rows = [["rank", "state", "doing", "steps"]]
    rows += [[str(rank.rank), LOOKS[rank.state].words, one_line(rank.doing), str(rank.steps)] for rank in ranks]
    if any(rank.checkpoint for rank in ranks):
        last = ["passed last", *(one_line(rank.checkpoint, _WIDEST) for rank in ranks)]
        rows = [[*row, cell] for row, cell in zip(rows, last, strict=True)]
    return rows
