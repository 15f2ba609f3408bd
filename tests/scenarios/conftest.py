"""Ranks that record the lines that they execute: the ground truth for what findings name."""

from __future__ import annotations

import pytest

from benchmarks import executed
from tests.recordings.scenario import Scenarios, launched


@pytest.fixture(scope="module")
def ran():
    """The lines that the ranks really executed."""
    with executed.recording() as lines:
        yield lines


@pytest.fixture(scope="module")
def traced_world(ran, request, forks):
    """Ranks that record what they run; a module says how many: ``TRACED = {"n": 4, "patience": 3.0}``."""
    terms = {"n": 2, "fork": True, **getattr(request.module, "TRACED", {})}
    terms["fork"] = terms["fork"] or forks  # what needs new interpreters is diagnosed from its recording here
    with launched(**terms, timeout=240) as world:
        yield world


@pytest.fixture
def scenario(request):
    """Runs a scenario, or reads its recording."""
    return Scenarios(request)
