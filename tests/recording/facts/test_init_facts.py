"""The last init_process_group of each rank."""

from __future__ import annotations

from ddpnb.recording.facts.init_facts import inits
from tests.rules.recordings import Rank, line, record


def test_the_last_start_counts():
    rank = Rank(0, 2).phase("init_process_group", "done", line(4), rank=1)
    assert inits(record(rank, Rank(1, 2).absent()))[0].rank == 1
    assert inits(record(Rank(1, 2).absent())) == {}
