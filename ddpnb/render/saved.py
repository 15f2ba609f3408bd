"""The state of a dashboard as static HTML, for a notebook that is read without a kernel.

No scripts; readable without its styles too, which GitHub drops: a heading, cards, a table and a picture.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace

from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE
from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import Recording
from ddpnb.render import board, card, markup
from ddpnb.render.recording import plot
from ddpnb.render.text import one_line
from ddpnb.views.board import Tile

_FINDINGS = 12
_ROWS = 64
_CALLS = 48  # of each rank, in the picture
_DPI = 110
_SHARP = 160
_TEXT = 20_000  # characters of a panel that has nothing else to show
PANEL, SAVED = "ddpnb-panel", "ddpnb-saved"  # classes of a panel in the page, and of its saved state


def state(
    title: str,
    at: str,
    *,
    diagnosis: Diagnosis | None = None,
    tiles: Sequence[Tile] = (),
    recording: Recording | None = None,
    text: str = "",
) -> str:
    """What a dashboard showed: see ``wrapped`` for what makes it an output of its own.

    Args:
        title: the head of the dashboard, in words.
        at: when that was, in words.
        diagnosis: of the run, if it is known.
        tiles: of the ranks.
        recording: for the picture of the time line.
        text: shown instead where there are no ranks.
    """
    parts = [f"<p><b>{markup.text(title, 500)}</b></p>", f'<p class="faint">Saved {markup.text(at)}.</p>']
    if diagnosis is not None:
        parts.append(cards(diagnosis))
    if tiles:
        parts.append(f"<h3>Ranks</h3>{ranks(tiles)}")
    if recording is not None:
        parts.append(time_line(recording, diagnosis, last=_CALLS))
    if text and not (tiles or recording is not None):
        parts.append(f"<pre>{markup.text(text, _TEXT)}</pre>")
    return "".join(parts)


def now() -> str:
    """This moment, in words."""
    return time.strftime("%Y-%m-%d %H:%M")


def cards(diagnosis: Diagnosis) -> str:
    """The findings."""
    shown = card.html(replace(diagnosis, findings=diagnosis.findings[:_FINDINGS]), headline=False)
    more = len(diagnosis.findings) - _FINDINGS
    rest = f'<p class="faint">And {more} more findings.</p>' if more > 0 else ""
    return markup.without_links(shown) + rest


def ranks(tiles: Sequence[Tile]) -> str:
    """The board as a table."""
    rows: list[str] = []
    for one in tiles[:_ROWS]:
        look = board.look_of(one)
        since = markup.span(one.since_s) if one.since_s is not None else ""
        missing = f", for {phrases.ranks(one.missing)}" if one.missing else ""
        where = one_line(str(one.site), 100) if one.site != NO_SITE else ""
        role = "error" if one.finding else "warning" if one.undecided else look.role
        cells = (f"{one.doing}{missing}", since, one.steps or "", where, one.finding or one.undecided)
        state = f'<td class="{role}">{markup.icon(look.icon)} <b>{markup.text(look.words)}</b></td>'
        who = phrases.ranks(one.ranks).partition(" ")[2]
        shown = "".join(f"<td>{markup.text(cell, 200)}</td>" for cell in cells)
        rows.append(f'<tr><th scope="row">{markup.text(who, 200)}</th>{state}{shown}</tr>')
    heads = ("rank", "state", "doing", "since", "step", "where", "finding")
    more = f'<p class="faint">And {len(tiles) - _ROWS} more.</p>' if len(tiles) > _ROWS else ""
    return markup.table("ranks", heads, rows, kind="mono left") + more


def time_line(recording: Recording, diagnosis: Diagnosis | None, *, last: int = 0, sharp: bool = False) -> str:
    """The time line as a picture; nothing if no call was recorded.

    Args:
        recording: to draw.
        diagnosis: of it, if it is known.
        last: the last so many calls of each rank; 0: all of them.
        sharp: for a page of its own.
    """
    if not any(call.entered_ns for record in recording.ranks.values() for call in record.calls):
        return ""
    from ddpnb.render.figures import canvas
    from ddpnb.views.lanes import MOST

    drawn = canvas.drawn(plot(recording, diagnosis, last=last, displayed=False), dpi=_SHARP if sharp else _DPI)
    count = len(recording.ranks)
    which = f"each of {count}" if count <= MOST else f"the most relevant of {count:,}"
    words = f"The time line: a lane for {which} ranks, with its calls."
    note = f'<p class="faint">The most relevant of {count:,} ranks.</p>' if count > MOST else ""
    source = f"data:image/png;base64,{b64encode(drawn).decode()}"
    return f'<h3>Time line</h3>{note}<img alt="{words}" style="max-width:100%" src="{source}">'


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
