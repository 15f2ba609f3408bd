"""Real frameworks under ``ddpnb run -- COMMAND``: ``make matrix``. Without ``-m matrix`` none of these run."""

from __future__ import annotations

import pytest

from tests.matrix.command import Command


@pytest.fixture
def command(tmp_path):
    """Runs a command line in a copy of a program's folder; whatever it leaves behind is ended after the test."""
    runs: list[Command] = []

    def run(program, *prefix, **more) -> Command:
        runs.append(Command(tmp_path / str(len(runs)), program, prefix, **more))
        return runs[-1]

    yield run
    for one in runs:
        one.end()
