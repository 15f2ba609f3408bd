"""Rows of curves: lines of few ranks, the range of many, and what is not finite."""

from __future__ import annotations

import math

import pytest
from matplotlib.figure import Figure

import ddpnb
from ddpnb.errors import UsageError
from ddpnb.recording.curves import Curves, RankCurves
from ddpnb.recording.events.models import LossNotFinite
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.render.figures import canvas
from ddpnb.render.figures import curves as figures
from ddpnb.render.views.curves import curves_of, row, rows, sentence

FEW = Curves(
    10**9,
    {
        0: RankCurves(loss=((0.0, 2.0), (1.0, 1.0)), memory=((-1.0, 1e6), (1.0, 3e6))),
        1: RankCurves(loss=((0.0, 2.0), (1.5, math.inf)), cores=((0.5, 1.0),)),
    },
)


def test_a_line_for_each_of_few_ranks():
    loss, memory, cores = rows(FEW)
    assert loss.lines == {0: ((0.0, 2.0), (1.0, 1.0)), 1: ((0.0, 2.0),)} and loss.unsound == ((1.5, 1),)
    assert memory.lines == {0: ((-1.0, 1.0), (1.0, 3.0))}
    assert cores.title == "cores in use"
    assert sentence(rows(FEW)).splitlines()[0] == "loss, last: 1 on 0, 2 on 1; not finite first on rank 1, at 1.50 s"


def test_the_range_of_many():
    many = Curves(
        0, {rank: RankCurves(loss=((0.0, float(rank)), (1.0 + rank / 100, 2.0 * rank))) for rank in range(64)}
    )
    loss = rows(many)[0]
    assert not loss.lines and loss.ranks == 64
    assert loss.band[0] == (0.0, 0.0, 31.5, 63.0) and len(loss.band) <= 200
    assert loss.band[-1][1:] == (126.0, 126.0, 126.0)  # the last rank alone has a value there
    assert "on 64 ranks" in sentence((loss,))


def test_nothing_recorded():
    assert [one.title for one in rows(None)] == ["loss", "process memory, MB"]
    assert sentence(rows(Curves())) == "loss: none recorded\nprocess memory, MB: none recorded"
    assert "no loss recorded" in figures.curves(rows(None)).texts[0].get_text()
    with pytest.raises(UsageError, match="there is no curve 'speed'"):
        row(FEW, "speed")


def test_losses_that_are_known_only_not_to_be_finite():
    event = LossNotFinite(began_ns=3 * 10**9, ended_ns=3 * 10**9, loss="nan")
    recording = Recording(2, {0: RankRecord(0), 2: RankRecord(2, history=(event,))}, curves=FEW)
    assert rows(curves_of(recording))[0].unsound == ((1.5, 1), (2.0, 2))
    assert curves_of(Recording(1, {})) is None


def test_a_recording_keeps_them(tmp_path):
    odd = Curves(5, {3: RankCurves(loss=((0.5, math.nan), (1.0, -math.inf)), device_busy=((0.0, 0.5),))})
    Recording(1, {0: RankRecord(0)}, curves=odd).save(tmp_path / "kept.ddpnb")
    kept = ddpnb.load(tmp_path / "kept.ddpnb")
    assert repr(kept.curves) == repr(odd)  # NaN is not equal to itself
    axes = kept.plot_curves()
    assert [one.get_ylabel() for one in axes.figure.axes] == ["loss", "process memory, MB", "GPU in use, %"]
    mine = Figure().add_subplot()
    assert kept.plot_curves(mine, what="device_busy") is mine and mine.lines[0].get_ydata().tolist() == [50.0]


def test_all_rows_have_one_time_axis_and_marks_what_is_not_finite():
    axes = figures.curves(rows(FEW))
    assert len({one.get_xlim() for one in axes.figure.axes}) == 1
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words == ["rank 0", "rank 1", "not finite: 1"]
    assert axes.figure.axes[-1].get_xlabel() == "seconds of the run"
    assert axes.get_ylim()[1] < 3
    assert canvas.drawn(axes).startswith(b"\x89PNG")
