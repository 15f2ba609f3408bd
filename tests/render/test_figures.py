"""Figures: drawn from matplotlib's objects alone."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

from ddpnb.diagnosis.diagnose import diagnose
from ddpnb.render import figures
from ddpnb.views.lanes import Lanes, lanes
from tests.diagnosis.recordings import Rank, line, record


def hang():
    taken = record(
        Rank(0, 2).calls("all_reduce", line(5)).waits("all_reduce", line(5)),
        Rank(1, 2).calls("all_reduce", line(5)).raises("ValueError", "costs $5 and $6", line(9)),
    )
    return lanes(replace(taken, taken_ns=20_000_000), diagnose(taken))


def drawn(figure, form="svg"):
    out = io.BytesIO()
    figure.savefig(out, format=form)
    return out.getvalue()


def test_the_lanes_of_a_hang():
    figure = figures.timeline(hang())
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1"]
    assert any(one.get_hatch() for one in axes.collections if len(one.get_paths()))
    texts = [one.get_text() for one in axes.texts]
    assert texts[0] == "all_reduce #2 waits for 1"
    assert b"<svg" in drawn(figure) and drawn(figure, "png").startswith(b"\x89PNG")


def test_nothing_yet():
    figure = figures.timeline(Lanes())
    assert figure.axes[0].texts[0].get_text() == "no collective recorded"
    assert drawn(figure)


def test_a_part_of_the_time():
    shown = hang()
    figure = figures.timeline(shown, begin=shown.now / 2, end=shown.now)
    assert figure.axes[0].get_xlim()[0] == -shown.now / 2


def test_no_state_of_the_program_is_changed():
    before = "matplotlib.pyplot" in sys.modules
    figures.timeline(hang())
    assert ("matplotlib.pyplot" in sys.modules) == before
