"""A run whose outcome cannot be known: who is told so, and where its logs are kept."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ddpnb.errors import WorldError
from ddpnb.ranks.observe import logs
from ddpnb.world.restart import Restart
from ddpnb.world.run import Run
from ddpnb.world.run_monitor import RunMonitor


@pytest.fixture
def kept(monkeypatch):
    """The copies that were made of logs."""
    copies = []

    def keep(paths):
        copies.append(list(paths))
        return "/somewhere"

    monkeypatch.setattr(logs, "keep", keep)
    return copies


@pytest.fixture
def monitor(tmp_path):
    outside = SimpleNamespace(source=None, queued=None, here=False)
    failed = RunMonitor(
        SimpleNamespace(check_owner=lambda: None, outside=lambda: outside), str(tmp_path), 1, str(tmp_path), [0],
        {0: str(tmp_path / "ending.json")}, patience=1.0, logs_are_removed=True,
    )  # fmt: skip
    failed.failure = WorldError("the controller of this world has died.", "Launch a new one.")
    failed.known.set()
    return failed


def test_the_logs_are_kept_once_for_the_message_that_names_them(monitor, kept):
    for _ in range(2):
        with pytest.raises(WorldError, match="has died(.|\n)*output of the ranks is in /somewhere"):
            Run(monitor).wait(1)
    assert len(kept) == 1


def test_the_next_run_keeps_no_logs_that_nobody_hears_of(monitor, kept, monkeypatch):
    monkeypatch.setattr(Restart, "_unusable", lambda _self, **_: [])
    ranks = SimpleNamespace(check_free=lambda _ranks: None, in_run={0: monitor})
    Restart(ranks, None, SimpleNamespace(has_group=lambda: False), None).prepare([0], "script")
    assert kept == []
