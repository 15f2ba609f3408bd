"""Which steps are looked at: what it costs stays within its share, and all ranks look at the same ones."""

from __future__ import annotations

import pytest

from ddpnb.recorder.models.sampling import FIRST_S, LEAST, PASS_S, SHARE, Pace, slices_of
from ddpnb.recording.samples import first_of


def train(pace, step_s, look_s, steps, first=0, now=0.0, spent=FIRST_S, models=1):
    """The steps that were looked at, and the clock then."""
    pace.spent = spent
    looked = []
    for step in range(first, first + steps):
        now += step_s
        if pace.looking:
            looked.append(step)
            pace.cost = look_s
            now += look_s
            pace.looked(step + 1, now, models)
        pace.next_step(step + 1)
    return looked, now


def test_every_step_at_first_and_then_ever_fewer():
    pace = Pace()
    looked, _ = train(pace, 0.01, 0.001, 2000, spent=0.0)
    assert looked[:50] == list(range(50))
    gaps = [after - before for before, after in zip(looked, looked[1:], strict=False)]
    assert gaps == sorted(gaps)
    assert set(gaps) == {1, 2, 4, 8, 16, 32, 64}
    assert [gaps.count(gap) for gap in (2, 4, 8)] == pytest.approx([25, 12, 6], abs=2)


def test_a_short_run_is_little_slower():
    looked, _ = train(Pace(), 0.018, 0.0025, 100, spent=0.0)
    assert looked[:20] == list(range(20))
    assert len(looked) * 0.0025 < 0.06 * 100 * 0.018


@pytest.mark.parametrize("step_s", [0.001, 0.01, 0.03, 0.3, 3.0])
@pytest.mark.parametrize("look_s", [0.0002, 0.002, 0.02])
@pytest.mark.parametrize("models", [1, 3])
def test_looking_and_passing_stay_within_their_share(step_s, look_s, models):
    pace = Pace()
    train(pace, step_s, look_s, 20_000, models=models)
    looked, _ = train(pace, step_s, look_s, 20_000, 20_000, models=models)
    cost = len(looked) * look_s / (20_000 * step_s) * models
    assert cost <= max(SHARE - PASS_S / step_s, LEAST) * 1.05 or pace.stride == 12
    assert cost >= max(SHARE - PASS_S / step_s, LEAST) * 0.4 or pace.stride == 0


def test_ranks_of_other_strides_have_steps_in_common():
    seen = []
    for look_s in (0.001, 0.004):
        pace = Pace()
        train(pace, 0.02, look_s, 4096)
        seen.append(set(train(pace, 0.02, look_s, 4096, 4096)[0]))
    assert seen[0] > seen[1] and len(seen[1]) > 16


def test_a_model_that_becomes_slower_is_looked_at_more_often():
    pace = Pace()
    train(pace, 0.01, 0.002, 5000)
    before = pace.stride
    train(pace, 0.5, 0.002, 5000)
    assert pace.stride == 0 < before


def test_a_clock_that_stands():
    pace = Pace()
    for step in range(50):
        pace.cost = 1.0
        pace.looked(step, 1.0)
        pace.next_step(step)
    assert 0 <= pace.stride <= 12


@pytest.mark.parametrize(
    ("size", "log2"), [(0, 0), (1, 0), (16 << 20, 0), ((16 << 20) + 1, 1), (400 << 20, 5), (1 << 50, 12)]
)
def test_large_models_are_cut_in_slices(size, log2):
    assert slices_of(size) == log2


@pytest.mark.parametrize("log2", [0, 1, 2, 3, 5, 7])
@pytest.mark.parametrize("stride", [0, 1, 2, 3, 4, 6, 9, 12])
@pytest.mark.parametrize("plus", [0, 1])
def test_whatever_the_stride_all_slices_have_their_turn(log2, stride, plus):
    """As many looks one after the other as there are slices see all of the model."""
    for first in (0, 3 << log2, 41 << log2):
        looks = [((first + n) << stride) + (plus if stride else 0) for n in range(1 << log2)]
        assert sorted(first_of(step, log2) for step in looks) == list(range(1 << log2))


def test_steps_that_are_named_are_all_looked_at(monkeypatch):
    monkeypatch.setenv("DDPNB_LOOKS", "100..140")
    pace = Pace()
    assert not pace.closely
    looked, _ = train(pace, 0.001, 0.02, 300)
    assert set(range(100, 141)) <= set(looked)
    assert len([step for step in looked if step > 140]) < 5
    pace.next_step(140)
    assert pace.looking and pace.closely
    pace.next_step(141)
    assert not pace.closely


@pytest.mark.parametrize("text", ["", "3", "a..b", "4..", "-1..9", "9..3"])
def test_anything_else_names_none(monkeypatch, text):
    monkeypatch.setenv("DDPNB_LOOKS", text)
    pace = Pace()
    for step in range(20):
        pace.next_step(step)
        assert not pace.closely
