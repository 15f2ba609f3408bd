"""What a Recording and a Diagnosis are shown as: the module that ``model.writers`` loads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddpnb.recording.files import write_whole
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.recording.recording import Recording
from ddpnb.render import card, markup
from ddpnb.render.views import curves
from ddpnb.render.views.gradient_norms import gradient_norms
from ddpnb.render.views.lanes import lanes
from ddpnb.rules.diagnose import diagnose

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def text(diagnosis: Diagnosis) -> str:
    """The findings as text."""
    return card.text(diagnosis)


def html(diagnosis: Diagnosis) -> str:
    """The findings as HTML that stands alone."""
    return markup.standalone(card.html(diagnosis), "diagnosis")


def markdown(diagnosis: Diagnosis, findings: Sequence[Finding] | None) -> str:
    """The findings as Markdown: see ``Diagnosis.to_markdown``."""
    return card.markdown(diagnosis, findings)


def plot(
    recording: Recording,
    diagnosis: Diagnosis | None = None,
    ax: Axes | None = None,
    *,
    begin: float | None = None,
    end: float | None = None,
    last: int = 0,
    displayed: bool = True,
) -> Axes:
    """The time line: see ``Recording.plot``.

    Args:
        recording: to draw.
        diagnosis: of it, if it is known.
        ax: where to draw; None: a new figure.
        begin, end: seconds of the run, as the axis shows them.
        last: begin with the first of the last so many calls of a rank.
        displayed: whether pyplot may show a new figure.
    """
    from ddpnb.render.figures.timeline import timeline

    made = lanes(recording, diagnosis if diagnosis is not None else diagnose(recording))
    if last and begin is None:
        begin = min((calls[0].begin for row in made.lanes if (calls := made.spans(row.rank, last))), default=None)
    return timeline(made, ax, begin, end, shown=displayed)


def plot_gradients(recording: Recording, ax: Axes | None = None) -> Axes:
    """Norms of the gradients: see ``Recording.plot_gradients``."""
    from ddpnb.render.figures.over_time import gradients

    return gradients(gradient_norms(recording), ax)


def plot_curves(recording: Recording, ax: Axes | None = None, what: str = "loss") -> Axes:
    """Loss, memory and use over time: see ``Recording.plot_curves``."""
    from ddpnb.render.figures.curves import curves as draw

    known = curves.curves_of(recording)
    return draw(curves.rows(known) if ax is None else (curves.row(known, what),), ax)


def save_perfetto(recording: Recording, path: str | os.PathLike[str]) -> None:
    """A trace: see ``Recording.to_perfetto``."""
    from ddpnb.render.perfetto import save

    save(recording, path)


def save_html(recording: Recording, path: str | os.PathLike[str], diagnosis: Diagnosis | None = None) -> None:
    """A page: see ``Recording.to_html``."""
    from ddpnb.render.still import page

    write_whole(path, page(recording, diagnosis if diagnosis is not None else diagnose(recording)))
