"""The README is read on one screen or two: what has more to say is in docs."""

from __future__ import annotations

from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_it_is_short():
    assert len(README.splitlines()) <= 90
    assert len(README.split()) <= 900


def test_the_first_screen_says_what_is_needed_and_what_was_run_on_gpus():
    first = "\n".join(README.splitlines()[:25])
    for words in ("Python 3.11", "torch 2.9", "docs/gpu.md", "not run", "pip install", "make lab", "make test"):
        assert words in first
