"""GradScalers whose scales differ between ranks."""

from __future__ import annotations

import pytest

from ddpnb.recording.phrases import besides
from tests.rules.divergence.steps import recorded, some, step
from tests.rules.recordings import diagnose, line


def first(make):
    return next(iter(diagnose(recorded(make)).findings), None)


def scales(*values, restored=False):
    def make(rank):
        step(rank.loads("scaler", line(21)) if restored else rank)
        for value in values:
            rank.scales(value)

    return make


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
def test_a_scale_that_has_parted(culprits):
    one = first(some(culprits, scales(65536.0, 32768.0), scales(65536.0, 65536.0)))
    assert (one.code, one.severity, one.culprits, one.waiting) == (
        "DDP409", "error", culprits, besides(range(4), culprits),
    )  # fmt: skip
    assert "update 2" in one.summary and f"Rank {culprits[0]}: scale 32768." in one.evidence


def test_scalers_that_begin_apart():
    def make(rank):
        for _ in range(3):
            step(rank).scales(2.0 ** (14 - 4 * (rank.rank == 1)), line(3))

    one = first(make)
    assert (one.code, one.culprits, dict(one.where)[1]) == ("DDP409", (1,), line(3))


@pytest.mark.parametrize("culprits", [(0,), (1, 2)], ids=str)
def test_a_scaler_that_was_restored_on_some_ranks(culprits):
    one = first(some(culprits, scales(1024.0, restored=True), scales(65536.0)))
    assert (one.code, one.culprits, one.waiting) == ("DDP605", culprits, besides(range(4), culprits))
    assert one.where == tuple((number, line(21)) for number in culprits)


def test_a_scaler_that_was_restored_on_all_ranks():
    assert first(scales(1024.0, restored=True)) is None
    parted = first(some((1,), scales(1.0, restored=True), scales(2.0, restored=True)))
    assert (parted.code, parted.culprits) == ("DDP409", (1,))
