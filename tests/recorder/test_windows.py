"""At which collectives and steps windows begin: what they cost stays within its share, and ranks have places in common."""

from __future__ import annotations

import pytest

from ddpnb.recorder.windows import FIRST_S, SHARE, Pace


def train(pace, step_s, cost_s, steps, first=1, now=0.0):
    """The steps at which a window began, and the clock then."""
    opened = []
    for step in range(first, first + steps):
        now += step_s
        if pace.due(step):
            opened.append(step)
            now += cost_s
            pace.opened(step, now, cost_s)
    return opened, now


def test_every_step_of_a_short_run_begins_a_window():
    opened, _ = train(Pace(), 0.01, 0.0001, 200)
    assert opened == list(range(1, 201))


def test_windows_become_rarer_and_stay_at_multiples_of_a_power_of_two():
    opened, _ = train(Pace(), 0.002, 0.0002, 5000)
    gaps = [after - before for before, after in zip(opened, opened[1:], strict=False)]
    assert gaps == sorted(gaps) and set(gaps) <= {1, 2, 4, 8, 16, 32, 64}
    assert all(step % gaps[-1] == 0 for step in opened[-10:])


@pytest.mark.parametrize("step_s", [0.0001, 0.0018, 0.01, 0.3])
@pytest.mark.parametrize("cost_s", [0.00003, 0.0002, 0.002])
def test_the_cost_stays_within_its_share(step_s, cost_s):
    pace = Pace()
    _, now = train(pace, step_s, cost_s, 20_000)
    spent, (_, end) = pace.spent, train(pace, step_s, cost_s, 20_000, 20_001, now)
    assert spent < FIRST_S + SHARE * now + 4 * cost_s
    assert pace.spent - spent <= SHARE * (end - now) * 1.05 + cost_s


def test_ranks_of_different_speed_have_windows_in_common():
    fast, _ = train(Pace(), 0.01, 0.0002, 3000)
    slow, _ = train(Pace(), 0.01, 0.0009, 3000)
    assert len(fast) > len(slow) and set(slow[-100:]) <= set(fast)


def test_a_pace_of_collectives_that_are_far_apart_goes_back_to_all():
    pace = Pace()
    _, now = train(pace, 0.001, 0.0003, 4000)
    assert pace.every > 1
    train(pace, 0.5, 0.0003, 2000, 4001, now)
    assert pace.every == 1
