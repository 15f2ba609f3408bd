"""The last runs of a world as a table, and two of them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.recording.timing.account import account
from ddpnb.render import answers, as_html, controls, document, markup
from ddpnb.render.answers import Answer
from ddpnb.render.document import Cell, Code, Drawn, Icon, Span, Table
from ddpnb.render.views.run_differences import Difference

_CODES = 4  # findings of a row
_LONGEST = 80  # characters of what ran


@dataclass(frozen=True, slots=True)
class Row:
    """One run. ``began``: the time of day; ``seconds``: after how many its outcome was known, None: it is not.

    ``findings``: codes and names; ``stands``: its ranks are still in it.
    """

    number: int
    what: str
    began: str
    seconds: float | None
    outcome: str
    findings: tuple[str, ...] = ()
    stands: bool = False


def history(
    rows: Sequence[Row],
    shown: int | None,
    compared: tuple[int, int] | None = None,
    answer: Answer = Answer(),  # noqa: B008  # frozen
) -> str:
    """The last runs, newest first, with a button each to show it, and a form to compare two.

    Args:
        rows: in the order in which they began.
        shown: the number of the one that the dashboard shows; None: the state now.
        compared: the numbers of those that are compared.
        answer: to the actions of this part.
    """
    if not rows:
        return '<p class="faint">Nothing has run yet.</p>'
    heads = ("run", "what ran", "began", "outcome", "known after", "findings", "")
    listed = as_html.html(Table("last runs", heads, [_row(row, shown) for row in reversed(rows)], "values", 200))
    now = markup.button("show the ranks now", "show run", enabled=shown is not None, number="")
    options = [(str(row.number), f"{row.number}: {row.what[:40]}") for row in rows if row.seconds is not None]
    first, second = compared or tuple(int(number) for number, _ in (options[-2:] + options[-1:])[:2]) or (0, 0)
    form = markup.form(
        "compare runs",
        markup.choice("compare", "first", options, str(first)),
        markup.choice("with", "second", options, str(second)),
        markup.button("compare", "compare runs", image="why", enabled=len(options) > 1),
        below=True,
    )
    return f'{listed}<div class="row" style="margin-top:6px">{now}</div>{form}{answers.html(answer)}'


def _row(row: Row, shown: int | None) -> document.Row:
    image, role, words = controls.look(row.outcome)
    codes = "; ".join(row.findings[:_CODES]) + f"; and {len(row.findings) - _CODES} more" * (len(row.findings) > _CODES)
    cut, here, ended = len(row.what) > _LONGEST, row.number == shown, row.seconds is not None
    button = markup.button("shown" if here else "show", "show run", enabled=not here and ended, number=row.number)
    cells = (
        str(row.number),
        Cell((Code(row.what[:_LONGEST]), " …" * cut), hover=row.what if cut else ""),
        Cell((row.began,), role="wide"),
        Cell((Icon(image, role), Span(words, role), ", ranks are in it" * row.stands)),
        Cell((markup.span(row.seconds) if row.seconds is not None else "",), role="wide"),
        codes,
        Drawn(button),
    )
    return document.Row(cells, current=here)


def comparison(
    labels: tuple[str, str],
    diagnoses: tuple[Diagnosis, Diagnosis],
    recordings: tuple[Recording, Recording],
    differences: Sequence[Difference],
) -> Table:
    """Two runs side by side: a column each."""
    rows = _rows(diagnoses, recordings, differences)
    return Table("two runs side by side", ("", *labels), rows, kind="", widest=400)


def _rows(
    diagnoses: tuple[Diagnosis, Diagnosis],
    recordings: tuple[Recording, Recording],
    differences: Sequence[Difference],
) -> list[tuple[str, str, str]]:
    first, second = diagnoses
    rows = [("outcome", controls.words(first.outcome), controls.words(second.outcome))]
    rows.append(("findings", _findings(first), _findings(second)))
    times = [_time(recording) for recording in recordings]
    rows.append(("time of the ranks", times[0], times[1]))
    rows += [(f"first difference: {one.kind}, rank {one.rank}", one.first, one.second) for one in differences]
    if not differences:
        rows.append(("first difference", "none was recorded", "none was recorded"))
    return rows


def _findings(diagnosis: Diagnosis) -> str:
    return "; ".join(f"{one.code} {one.name}: {one.summary}" for one in diagnosis.findings[:_CODES]) or "none"


def _time(recording: Recording) -> str:
    """The seconds of all ranks together, by part."""
    parts = account(recording).parts
    return ", ".join(f"{part} {getattr(parts, part):.1f} s" for part in parts.parts)
