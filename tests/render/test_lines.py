"""Figures of quantities over time: real files, and nobody's pyplot is touched."""

from __future__ import annotations

import math
import subprocess
import sys
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest

from ddpnb.render import lines

GB = 10**9
LOOKS = [(0.5 * n, {0: GB, 1: 2 * GB}, {0: GB} if n > 2 else {}) for n in range(20)]


def labels(figure):
    return [text.get_text() for axes in figure.axes if axes.get_legend() for text in axes.get_legend().get_texts()]


def test_memory_is_a_line_per_rank_and_a_panel_more_where_there_are_gpus():
    figure = lines.memory(LOOKS)
    assert [axes.get_ylabel() for axes in figure.axes] == ["process memory, MB", "GPU memory, MB"]
    assert labels(figure) == ["rank 0", "rank 1", "rank 0"]
    assert list(figure.axes[0].lines[1].get_ydata()) == [2000.0] * 20
    assert len(lines.memory([(0.0, {0: 1}, {})]).axes) == 1


def test_gradients_are_a_line_per_rank():
    figure = lines.gradients({0: [(0, 1.0), (1, 2.0)], 3: [(0, math.nan), (1, math.inf)]})
    assert labels(figure) == ["rank 0", "rank 3"]
    assert lines.png(figure)


@pytest.mark.parametrize("figure", [lines.memory([]), lines.gradients({}), lines.gradients({0: []})])
def test_where_nothing_was_seen_the_figure_says_so(figure):
    assert "no data" in [text.get_text() for text in figure.axes[0].texts]
    assert lines.png(figure)


def test_the_files_are_real_ones():
    drawn = lines.png(lines.memory(LOOKS))
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n") and drawn.endswith(b"IEND\xaeB`\x82")
    assert ET.fromstring(lines.drawn(lines.memory(LOOKS), "svg")).tag.endswith("svg")


def test_ranks_beyond_the_colours_have_other_dashes():
    drawn = lines.gradients({rank: [(0, 1.0), (1, rank)] for rank in range(24)}).axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn}) == 24
    assert labels(lines.gradients({rank: [(0, 1.0)] for rank in range(40)})) == [f"rank {rank}" for rank in range(16)]


def test_all_letters_are_small():
    figure = lines.memory(LOOKS)
    lines.png(figure)
    axes = figure.axes[0]
    assert {text.get_size() for text in (axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels())} == {8}


def test_what_the_user_has_set_is_left_alone():
    before = dict(mpl.rcParams)
    lines.png(lines.memory(LOOKS))
    lines.drawn(lines.gradients({0: [(0, 1.0)]}), "svg")
    assert dict(mpl.rcParams) == before


def test_pyplot_is_not_even_imported():
    code = "import sys; from ddpnb.render import lines; lines.png(lines.memory([])); sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
