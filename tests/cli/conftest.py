"""A folder with the programs of jobs, and the end of what tests begin."""

from __future__ import annotations

import pytest

from tests.cli import jobs
from tests.cli.commands import end_begun


@pytest.fixture
def job(tmp_path):
    return jobs.write(tmp_path)


@pytest.fixture(autouse=True)
def _nothing_runs_on():
    """Processes that a failed test has begun end with it."""
    yield
    end_begun()
