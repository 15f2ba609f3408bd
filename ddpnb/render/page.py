"""A run as one HTML file: what was found, the ranks, the time line, and everything below it. No scripts, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ddpnb.errors import UsageError
from ddpnb.facts.before_the_end import while_waiting
from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import Recording
from ddpnb.render import account as accounts
from ddpnb.render import card, cells, markup, palette, saved, source_lines, stacks, startup, variables
from ddpnb.render.report import sources
from ddpnb.render.screen import as_seen
from ddpnb.timing.account import account
from ddpnb.views import board, frame_variables, merged_stacks
from ddpnb.views.source_lines import source_view

_FILES = 6  # of the user, with the lines that ran
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root{color-scheme:light dark}
body.ddpnb{margin:0 auto;padding:20px 24px 60px;max-width:80em;background:var(--ddpnb-bg);font-size:14px}
.ddpnb h1{font-size:20px;margin:0 0 4px}
.ddpnb h2,.ddpnb h3{font-size:15px;margin:22px 0 8px}
.ddpnb details{border-top:1px solid var(--ddpnb-line);padding:6px 0}
.ddpnb details>summary{cursor:pointer;font-weight:600;padding:4px 0}
@media print{body.ddpnb{max-width:none}.ddpnb details>*{break-inside:avoid-page}}
"""


def page(recording: Recording, diagnosis: Diagnosis) -> str:
    """The whole file.

    Args:
        recording: of a run, a report, or live ranks.
        diagnosis: of it.
    """
    recording = while_waiting(recording)
    headline = card.outcome_line(diagnosis)
    count = max(recording.world_size, len(recording.ranks))
    read = sources(recording) or f"{count} ranks, recorded by ddpnb."
    body = [
        f"<h1>{markup.text(headline, 200)}</h1>",
        f'<p class="faint">{markup.text(read, 600)} Written {saved.now()}.</p>',
        saved.cards(diagnosis),
        f"<h2>Ranks</h2>{saved.ranks(board.tiles(recording, diagnosis.findings))}",
        saved.time_line(recording, diagnosis, sharp=True),
        *_parts(recording, diagnosis),
    ]
    content = markup.without_links("".join(body))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>ddpnb: {escape(headline)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{markup.style()}{palette.css_by_preference()}{_STYLE}</style></head>"
        f'<body class="ddpnb"><main>{content}</main></body></html>\n'
    )


def _parts(recording: Recording, diagnosis: Diagnosis) -> Iterator[str]:
    times = account(recording)
    if times.parts.total > 0:
        yield f"<h2>Time account</h2>{accounts.body(times)}"
    if any(record.stacks for record in recording.ranks.values()):
        frames = frame_variables.side_by_side(recording)
        yield _folded("Variables by rank", variables.variables(frames), opened=diagnosis.outcome == "hang")
        culprits = {rank for finding in diagnosis.errors for rank in finding.culprits}
        sides = [side for finding in diagnosis.errors if not finding.culprits for side in finding.sides]
        yield _folded("Merged stacks", stacks.stacks(merged_stacks.merge(recording), culprits, sides))
    if any(record.path is not None or record.lines is not None for record in recording.ranks.values()):
        yield from _sources(recording)
    if recording.startup is not None:
        yield _folded("Start-up, step by step", startup.table(recording.startup))
    written = {rank: cells.Output(as_seen(record.output)) for rank, record in sorted(recording.ranks.items())}
    blocks = cells.fold(written)
    if blocks:
        yield _folded("Output of the ranks", cells.html(blocks))
    if recording.gaps:
        listed = "".join(f"<li>{markup.text(gap, 400)}</li>" for gap in recording.gaps[:64])
        yield _folded("What was not recorded", f"<ul>{listed}</ul>")


def _sources(recording: Recording) -> Iterator[str]:
    """The files whose lines ran, those first in which the ranks part."""
    first = source_view(recording)
    files = list(dict.fromkeys((first.file, *first.parting, *first.files)))[:_FILES]
    for file in files:
        try:
            view = source_view(recording, file or None)
        except UsageError:
            continue
        yield _folded(f"Source: {view.file or 'not recorded'}", source_lines.html(view), opened=file in first.parting)


def _folded(title: str, content: str, *, opened: bool = False) -> str:
    return f"<details{' open' if opened else ''}><summary>{markup.text(title, 200)}</summary>{content}</details>"
