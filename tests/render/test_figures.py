"""Figures: of hangs, accounts, replicas and quantities, on new Axes and on those of the user."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ddpnb.errors import UsageError
from ddpnb.recording.account import Account
from ddpnb.recording.curves import Curves
from ddpnb.recording.timing.scaling import compare
from ddpnb.render.account import TimeAccount
from ddpnb.render.figures import canvas, over_time
from ddpnb.render.figures.timeline import timeline
from ddpnb.render.palette import FIGURES, INK, RANKS
from ddpnb.render.views.lanes import Lanes, lanes
from ddpnb.world.comparison import Comparison, TensorDifference
from tests.render.accounts import rank as rank_account
from tests.rules.recordings import Rank, diagnose, line, record


def hang():
    made = record(
        Rank(0, 2).calls("all_reduce", line(5)).waits("all_reduce", line(5)),
        Rank(1, 2).calls("all_reduce", line(5)).raises("ValueError", "costs $5 and $6", line(9)),
    )
    return replace(made, taken_ns=60_000_000_000)


def words(axes):
    return [text.get_text() for text in axes.texts]


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_time_line_of_a_hang():
    axes = hang().plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1"]
    assert axes.get_yticklabels()[1].get_color() == FIGURES["error"]
    assert any(one.get_hatch() for one in axes.collections if len(one.get_paths()))
    assert words(axes)[0] == "all_reduce #2 waits for 1"
    assert r"costs \$5 and \$6" in words(axes)[1], "no mathematics is made of it"
    assert {"computing", "waiting", "others wait for it"} <= {*legend(axes)}
    assert "held" not in legend(axes), "nothing was"
    assert canvas.drawn(axes).startswith(b"\x89PNG") and b"<svg" in canvas.drawn(axes, "svg")


def test_the_time_in_which_nothing_happens_is_cut():
    axes = hang().plot()
    assert axes.get_xlim()[1] < 1
    assert "then 60.0 s without anything new" in axes.get_xlabel()


def test_a_part_of_the_time():
    assert hang().plot(begin=0.001, end=2).get_xlim() == (0.001, 2.0)
    with pytest.raises(UsageError, match="nothing between 2 s and 1 s"):
        hang().plot(begin=2, end=1)


def test_zero_is_where_the_run_began_where_that_is_known():
    made = hang()
    before = made.ranks[0].calls[0].entered_ns - 1
    late = replace(made, curves=Curves(1))
    drawn = lanes(late)
    assert drawn.spans(0)[0].begin == pytest.approx(before * 1e-9) and drawn.runs[-1].begin == 0
    assert late.plot().get_xlabel().startswith("seconds of the run;")
    assert made.plot().get_xlabel().startswith("seconds since the first call;")


def test_nothing_recorded_is_said():
    assert words(timeline(Lanes())) == ["no collective recorded"]
    assert words(TimeAccount.of(Account()).plot()) == ["no training recorded"]
    assert words(hang().plot_gradients()) == ["no gradients recorded"]
    assert words(Comparison().plot()) == ["no replicas to compare"]
    assert words(over_time.scaling(compare([(1, Account(), "ok", 1.0)]))) == ["no optimizer steps were recorded"]


def test_an_account_is_a_bar_of_parts_for_each_rank():
    made = Account(tuple(rank_account(n) for n in range(3)))
    axes = TimeAccount.of(made).plot()
    parts = made.ranks[0].parts
    assert sum(one.get_width() for one in axes.patches) == pytest.approx(3 * parts.total)
    assert any(one.get_hatch() for one in axes.patches) == (parts.waiting > 0)
    many = TimeAccount.of(Account(tuple(rank_account(n) for n in range(100)))).plot()
    assert len(many.get_yticks()) == 64 and "36 ranks" in many.get_xlabel()


def test_replicas_that_differ_are_letters_and_norms():
    one = TensorDifference(0, "layer.weight", ((0, 2), (1,)), 0.5, {0: 1.0, 1: 1.25, 2: 1.0})
    axes = Comparison((one,), 8).plot()
    assert words(axes) == ["A  1", "B  1.25", "A  1"]
    assert axes.get_yticklabels()[0].get_text() == "layer.weight\nup to 0.5 apart"
    assert "1 of 8 tensors differ" in axes.get_xlabel()


def test_scaling_shows_what_was_measured_beside_the_perfect_line():
    pace = [(n, Account((rank_account(0, steps_per_s=10.0 / n),)), "ok", 1.0) for n in (1, 2, 4)]
    axes = over_time.scaling(compare([*pace, (8, Account(), "hang", 1.0)]))
    assert legend(axes) == ["perfect", "measured", "hang"]
    assert list(axes.lines[1].get_ydata()) == [1.0, 1.0, 1.0]
    assert words(axes) == ["100%", "50%", "25%"]


def test_ranks_beyond_the_colours_have_other_dashes():
    axes = over_time.gradients({rank: [(0, 1.0), (1, rank)] for rank in range(24)})
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 24
    assert len(legend(axes)) == 16
    assert canvas.drawn(over_time.gradients({3: [(0, math.nan), (1, math.inf)]}))


def test_a_line_is_broken_where_a_rank_has_no_value_and_equal_ranks_have_one_line():
    steps = [(step, float(step)) for step in range(5)]
    axes = over_time.gradients({0: steps, 1: [*steps[:3], steps[4]], 2: steps, 3: steps})
    assert legend(axes) == ["ranks 0, 2, 3", "rank 1"]
    whole, broken = axes.lines
    assert math.isnan(broken.get_ydata()[3]) and broken.get_markevery() == [4], "a point that no line shows"
    assert whole.get_linestyle() == "-" != broken.get_linestyle() and whole.get_zorder() < broken.get_zorder()
    assert legend(over_time.gradients({rank: [(0, 1.0), (1, math.nan)] for rank in range(3)})) == ["all ranks"]


def test_axes_that_are_given_are_drawn_on_and_keep_their_ink():
    figure = Figure(facecolor="black")
    mine = figure.subplots()
    mine.xaxis.label.set_color("white")
    assert hang().plot(ax=mine) is mine
    assert TimeAccount.of(Account((rank_account(0),))).plot(ax=mine) is mine
    assert over_time.gradients({0: [(0, 1.0)]}, mine) is mine and len(figure.axes) == 1
    assert mine.xaxis.label.get_color() == "white"
    assert figure.get_facecolor() == (0.0, 0.0, 0.0, 1.0)
    with pytest.raises(UsageError, match="ax takes the Axes"):
        hang().plot(ax=figure)


def _contrast(colour, background):
    def luminance(name):
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(name)]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), parts, strict=True))

    low, high = sorted((luminance(colour), luminance(background)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_colours_are_seen_on_light_and_dark_pages_without_a_background(page):
    assert not hang().plot().figure.get_frameon()
    assert min(_contrast(colour, page) for colour in (*FIGURES.values(), *RANKS)) >= 3
    assert _contrast(INK, page) >= 4


def test_what_the_user_has_set_is_left_alone():
    before = dict(mpl.rcParams)
    canvas.drawn(hang().plot())
    assert dict(mpl.rcParams) == before


def test_files_are_real_and_other_names_are_refused():
    assert ET.fromstring(canvas.drawn(over_time.gradients({0: [(0, 1.0)]}), "svg")).tag.endswith("svg")
    assert canvas.kind_of("a/b.PDF") == "pdf"
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf"):
        canvas.kind_of("curve.gif")


RUN = """
import sys, threading
{first}
from ddpnb.render.figures import over_time
axes = [over_time.gradients(dict())]
thread = threading.Thread(target=lambda: axes.append(over_time.gradients(dict())))
thread.start(); thread.join()
pyplot = sys.modules.get("matplotlib.pyplot")
print(pyplot is not None, [pyplot.fignum_exists(ax.figure.number) if hasattr(ax.figure, "number") else False for ax in axes])
"""


@pytest.mark.parametrize(
    ("first", "said"),
    [
        pytest.param("", "False [False, False]", marks=pytest.mark.full),
        ("import matplotlib.pyplot", "True [True, False]"),
    ],
)
def test_pyplot_knows_the_figure_only_where_it_is_in_use_and_never_from_a_thread(first, said):
    run = subprocess.run(
        [sys.executable, "-c", RUN.format(first=first)], capture_output=True, text=True, timeout=60, check=True,
        env={**__import__("os").environ, "MPLBACKEND": "agg"},
    )  # fmt: skip
    assert run.stdout.strip() == said


def test_the_diagnosis_is_found_where_it_is_not_given():
    made = hang()
    assert words(made.plot())[1] == words(timeline(lanes(made, diagnose(made))))[1]
