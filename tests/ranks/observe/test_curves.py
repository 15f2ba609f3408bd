"""What is kept of quantities over time: in bounded memory, and what is not finite longest."""

from __future__ import annotations

import math
import struct

from ddpnb.ranks.observe.curves import _LOOKS, _LOSSES, CurveHistory
from ddpnb.recording.samples import KINDS, ROW, ROW_SIZE, STAMP, loss_of


def test_seconds_count_from_the_begin_of_the_run_or_from_a_collective_before_it():
    history = CurveHistory(10**9)
    history.loss(0, 1, 3 * 10**9, 0.5)
    history.look(2 * 10**9, {1: {"memory": 100, "cores": None}, 0: {"memory": 0, "cores": 0.5}})
    assert history.curves().ranks[1].loss == ((2.0, 0.5),)
    history.first_call(2 * 10**9)
    curves = history.curves()
    assert curves.origin_ns == 10**9
    assert curves.ranks[1].loss == ((2.0, 0.5),) and curves.ranks[1].memory == ((1.0, 100.0),)
    assert curves.ranks[0].memory == () and curves.ranks[0].cores == ((1.0, 0.5),)  # what is not known is no zero
    history.first_call(5 * 10**8)  # somebody began to look after it
    assert history.curves().origin_ns == 5 * 10**8


def test_of_several_models_the_one_with_most_losses_is_kept():
    history = CurveHistory(0)
    for step in range(3):
        history.loss(step % 2, 0, step, float(step))
    assert [value for _, value in history.curves().ranks[0].loss] == [0.0, 2.0]


def test_a_long_run_is_thinned_out():
    history = CurveHistory(0)
    for at in range(20 * _LOSSES):
        history.loss(0, 0, at, math.nan if at in (7, 8) else 1.0)
        history.look(at, {0: {"memory": at + 1}})
    (one,) = history.curves().ranks.values()
    assert _LOSSES // 4 < len(one.loss) <= _LOSSES
    assert [round(at * 1e9) for at, value in one.loss if math.isnan(value)] == [7, 8]
    assert [at for at, _ in one.loss] == sorted(at for at, _ in one.loss)
    assert one.loss[-1][0] > 19 * _LOSSES * 1e-9
    assert len(one.memory) <= _LOOKS and not history.due


def test_the_loss_of_a_row():
    def row(kind, *values):
        body = b"".join(struct.pack("<d", value) for value in values)
        head = ROW.pack(ROW_SIZE + len(body), STAMP, 2, KINDS.index(kind), 0, 1, 1, 0, 0, 5, 0, len(values))
        return head.ljust(ROW_SIZE, b"\0") + body

    assert loss_of(row("backward", 1.0, 0.25, 2.0)) == (2, 5, 0.25)
    assert loss_of(row("backward", 1.0)) is None  # on a GPU: it was not read
    assert loss_of(row("forward", 1.0, 0.25)) is None
    assert loss_of(row("backward", 1.0, 0.25)[:-8]) is None
