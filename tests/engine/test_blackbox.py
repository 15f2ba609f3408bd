"""The writer of black boxes."""

from __future__ import annotations

import os

import pytest

from ddpnb.engine.blackbox import BlackBox
from ddpnb.model import blackbox as layout


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "rank0.box")


@pytest.fixture
def box(path):
    return BlackBox(path, 0)


def test_all_of_its_space_is_allocated(path, box):
    """A rank that touches a page of a sparse file on a full /dev/shm is killed by SIGBUS."""
    assert os.stat(path).st_blocks * 512 >= layout.BOX_SIZE
