"""How many good answers are enough."""

from __future__ import annotations

import pytest

from ddpnb.studies.bisection.search import Rate


@pytest.mark.parametrize("rate", [Rate(), Rate(1, 0), Rate(3, 7), Rate(30, 70), Rate(1, 300)])
@pytest.mark.parametrize("risk", [0.1, 0.01, 0.001])
def test_so_many_good_answers_are_needed_and_no_fewer(rate, risk):
    needed = rate.probes_needed(risk)
    assert rate.missed(needed - 1) > risk
    assert rate.missed(needed) <= risk or needed == 10_000


def test_how_probable_it_is_that_a_failure_does_not_happen():
    assert Rate(3, 7).missed(0) == 1
    assert Rate(3, 7).missed(1) == pytest.approx(1 - Rate(3, 7).mean)
    assert Rate(0, 0).missed(2) == pytest.approx(1 / 3)  # of all rates from 0 to 1, equally probable
