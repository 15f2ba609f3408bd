"""A folder with the programs of jobs."""

from __future__ import annotations

import pytest

from tests.cli import jobs


@pytest.fixture
def job(tmp_path):
    return jobs.write(tmp_path)
