"""Latency and bandwidth from the times of each rank."""

from __future__ import annotations

import pytest

from ddpnb.recording.checks import CollectiveTime


def test_the_slowest_rank_counts():
    one = CollectiveTime("all_reduce", 1000, {0: (1.0, 2.0, 9.0), 1: (4.0, 4.0, 4.0)})
    assert one.medians == {0: 2.0, 1: 4.0} and one.latency == 4.0
    assert (one.algorithm_bandwidth, one.bus_bandwidth) == (250.0, 250.0)
    assert one.to_json()["ranks"]["0"] == {"median_s": 2.0, "longest_s": 9.0} and one.to_json()["calls"] == 3


@pytest.mark.parametrize(("ranks", "factor"), [(1, 0), (2, 1), (4, 1.5), (8, 1.75)])
def test_the_bus_bandwidth_is_that_of_nccl_tests(ranks, factor):
    one = CollectiveTime("all_reduce", 100, dict.fromkeys(range(ranks), (1.0,)))
    assert one.bus_bandwidth == 100 * factor


def test_without_times():
    one = CollectiveTime("barrier", 0, {})
    assert (one.latency, one.algorithm_bandwidth, one.bus_bandwidth, one.to_json()["calls"]) == (0, 0, 0, 0)
