"""A run without scripts: as one HTML file, and as the last state of a dashboard in a notebook that is read without a kernel.

Readable without its styles too, which GitHub drops: a heading, cards, a table and a picture. Nothing is loaded from elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from ddpnb.errors import UsageError
from ddpnb.recording.facts.before_the_end import while_waiting
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.recording.timing.account import account
from ddpnb.render import account as accounts
from ddpnb.render import as_html, board, card, cells, markup, palette, source_lines, stacks, startup, variables
from ddpnb.render.document import Items, Paragraph
from ddpnb.render.nouns import plot
from ddpnb.render.report import about, sources
from ddpnb.render.screen import as_seen
from ddpnb.render.views import board as boards
from ddpnb.render.views import frame_variables
from ddpnb.render.views.board import Tile
from ddpnb.render.views.source_lines import source_view

_FILES = 6  # of the user, with the lines that ran
_GAPS = 64
_CALLS = 48  # of each rank, in the picture of a last state
_DPI, _SHARP = 110, 160  # of a last state, and of a page of its own
_TEXT = 20_000  # characters of a panel that has nothing else to show
PANEL, SAVED = "ddpnb-panel", "ddpnb-saved"  # classes of a panel in the page, and of its last state
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root{color-scheme:light dark}
body.ddpnb{margin:0 auto;padding:20px 24px 60px;max-width:80em;background:var(--ddpnb-bg);font-size:14px}
.ddpnb h1{font-size:20px;margin:0 0 4px}
.ddpnb h2{font-size:15px;margin:22px 0 8px}
.ddpnb details{border-top:1px solid var(--ddpnb-line);padding:6px 0}
.ddpnb details>summary{cursor:pointer;font-weight:600;padding:4px 0}
.ddpnb main>ul{list-style:none;margin:8px 0 14px;padding:0;overflow-wrap:anywhere}
@media print{body.ddpnb{max-width:none}.ddpnb details>*{break-inside:avoid-page}}
"""


def state(
    title: str,
    *,
    diagnosis: Diagnosis | None = None,
    tiles: Sequence[Tile] = (),
    recording: Recording | None = None,
    text: str = "",
) -> str:
    """What a dashboard shows: see ``wrapped`` for what makes it an output of its own.

    Args:
        title: the head of the dashboard, in words.
        diagnosis: of the run, if it is known.
        tiles: of the ranks.
        recording: for the picture of the time line.
        text: shown instead where there are no ranks.
    """
    head = f'<p><b>{markup.text(title, 500)}</b></p><p class="faint">Saved {_now()}.</p>'
    shown = _sections(diagnosis, tiles, recording, last=_CALLS, dpi=_DPI)
    rest = f"<pre>{markup.text(text, _TEXT)}</pre>" if text and not (tiles or recording is not None) else ""
    return markup.without_links(head + shown + rest)


def wrapped(body: str, number: str) -> str:
    """An output of its own, that is hidden as long as the widget ``number`` is shown on the page.

    While a widget is loaded, its page does not know yet whether it lives: for these seconds both are hidden.
    """
    panel, saved, child = f".{PANEL}-{number}", f".{SAVED}-{number}", ".jp-OutputArea-child"
    rules = (
        f"body:has({panel}) :is({saved},{child}:has({saved})){{display:none}}"
        f"{child}:not(:has({panel})):has(+{child} {saved}){{display:none}}"  # "model not found"
        "@keyframes ddpnb-later{from,to{visibility:hidden;max-height:0;overflow:hidden;padding:0;margin:0}}"
        f".jp-NotebookPanel {child}:has({saved}){{animation:ddpnb-later 2.5s}}"
    )
    inner = markup.standalone(body, "the last state of the dashboard")
    return f'<style>{rules}</style><div class="{SAVED}-{number}">{inner}</div>'


def page(recording: Recording, diagnosis: Diagnosis) -> str:
    """A run as one HTML file: what was found, the ranks, the time line, and everything below it.

    Args:
        recording: of a run, a report, or live ranks.
        diagnosis: of it.
    """
    recording = while_waiting(recording)
    headline = card.outcome_line(diagnosis)
    count = max(recording.world_size, len(recording.ranks))
    read = sources(recording) or f"{count} ranks, recorded by ddpnb."
    head = f'<h1>{markup.text(headline, 200)}</h1><p class="faint">{markup.text(read, 600)} Written {_now()}.</p>'
    tiles = boards.tiles(recording, diagnosis.findings)
    head += markup.items((f"<b>{name}</b>: {markup.text(value)}" for name, value in about(recording)), "about this run")
    shown = [head, _sections(diagnosis, tiles, recording, dpi=_SHARP), *_below(recording, diagnosis)]
    content = markup.without_links("".join(shown))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>ddpnb: {markup.text(headline)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{markup.style()}{palette.css_by_preference()}{_STYLE}</style></head>"
        f'<body class="ddpnb"><main>{content}</main></body></html>\n'
    )


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M")


def _sections(
    diagnosis: Diagnosis | None,
    tiles: Sequence[Tile],
    recording: Recording | None,
    *,
    last: int = 0,
    dpi: int,
) -> str:
    """Findings, ranks and time line."""
    cards = card.html(diagnosis, headline=False) if diagnosis is not None else ""
    ranks = f"<h2>Ranks</h2>{as_html.html(*board.table(tiles))}" if tiles else ""
    line = _time_line(recording, diagnosis, last, dpi) if recording is not None else ""
    return cards + ranks + (f"<h2>Time line</h2>{line}" if line else "")


def _time_line(recording: Recording, diagnosis: Diagnosis | None, last: int, dpi: int) -> str:
    """The time line as a picture, of all calls or of the last ones of each rank; nothing if no call was recorded."""
    if not any(call.entered_ns for record in recording.ranks.values() for call in record.calls):
        return ""
    from ddpnb.render.figures import canvas
    from ddpnb.render.views.lanes import MOST

    drawn = canvas.drawn(plot(recording, diagnosis, last=last, displayed=False), dpi=dpi)
    count = len(recording.ranks)
    which = f"each of {count}" if count <= MOST else f"the most relevant of {count:,}"
    words = f"The time line: a lane for {which} ranks, with its calls."
    note = f'<p class="faint">The most relevant of {count:,} ranks.</p>' if count > MOST else ""
    return f"{note}{markup.picture(drawn, words)}"


def _below(recording: Recording, diagnosis: Diagnosis) -> Iterator[str]:
    """What unfolds."""
    times = account(recording)
    if times.parts.total > 0:
        yield f"<h2>Time account</h2>{as_html.html(accounts.document(times))}"
    if any(record.stacks for record in recording.ranks.values()):
        frames = variables.document(frame_variables.side_by_side(recording))
        yield markup.folded("Variables by rank", as_html.html(*frames), opened=diagnosis.outcome == "hang")
        yield markup.folded("Merged stacks", as_html.html(*stacks.of(recording, diagnosis)))
    if any(record.path is not None or record.lines is not None for record in recording.ranks.values()):
        first = source_view(recording)  # the files in which the ranks part come first
        for file in list(dict.fromkeys((first.file, *first.parting, *first.files)))[:_FILES]:
            try:
                view = source_view(recording, file or None)
            except UsageError:
                continue
            title = f"Source: {view.file or 'not recorded'}"
            yield markup.folded(title, as_html.html(*source_lines.document(view)), opened=file in first.parting)
    if recording.startup is not None:
        yield markup.folded("Start-up, step by step", as_html.html(*startup.document(recording.startup)))
    written = {rank: cells.Output(as_seen(record.output)) for rank, record in sorted(recording.ranks.items())}
    if folded := cells.fold(written):
        yield markup.folded("Output of the ranks", cells.html(folded))
    if recording.gaps:
        gaps = Items([Paragraph(gap[:400]) for gap in recording.gaps[:_GAPS]])
        yield markup.folded("What was not recorded", as_html.html(gaps))
