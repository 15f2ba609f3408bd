"""A run whose outcome cannot be known: who is told so, and where its logs are kept."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ddpnb.control.restart import Replaces
from ddpnb.control.run import Run
from ddpnb.errors import WorldError
from ddpnb.observe import logs


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
def run(tmp_path):
    failed = Run(
        SimpleNamespace(check_owner=lambda: None), str(tmp_path), 1, str(tmp_path), [0],
        {0: str(tmp_path / "ending.json")}, patience=1.0, stream=None, stream_limit=None, launch_s=0.0,
        logs_are_removed=True,
    )  # fmt: skip
    failed._failure = WorldError("the controller of this world has died.", "Launch a new one.")
    failed._known.set()
    return failed


def test_the_logs_are_kept_once_for_the_message_that_names_them(run, kept):
    for _ in range(2):
        with pytest.raises(WorldError, match="has died(.|\n)*output of the ranks is in /somewhere"):
            run.wait(1)
    assert len(kept) == 1


def test_the_next_run_keeps_no_logs_that_nobody_hears_of(run, kept):
    class Room(Replaces):
        size = 1
        _in_run = {0: run}  # noqa: RUF012

        def _busy(self):
            return []

        def _alive(self, _rank):
            return True

        def _spoilt(self):
            return []

    Room()._make_room([0])
    assert kept == []
