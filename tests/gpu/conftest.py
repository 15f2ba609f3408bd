"""A rank in this process, as the tests of the recorder have it."""

from __future__ import annotations

from tests.recorder.conftest import alone, watched

__all__ = ["alone", "watched"]
