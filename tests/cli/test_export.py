"""``ddpnb export``: what a file becomes by the end of its name."""

from __future__ import annotations

import json

import pytest

from tests.rules.recordings import Rank, line, record


@pytest.fixture
def hang(tmp_path):
    made = record(
        Rank(0, 2).calls("all_reduce", line(5)).waits("all_reduce", line(5)),
        Rank(1, 2).calls("all_reduce", line(5)).finishes(),
    )
    made.save(tmp_path / "hang.ddpnb")
    return tmp_path


def test_a_page_a_trace_a_picture_and_a_script(hang, cli):
    begins = {"page.html": "<!DOCTYPE html>", "trace.json": '{"displayTimeUnit"', "line.svg": "<?xml", "repro.py": "#"}
    for name, begin in begins.items():
        done = cli("export", "hang.ddpnb", "-o", name, cwd=hang)
        assert done.returncode == 0, done.stderr
        assert name in done.stdout + done.stderr
        assert (hang / name).read_text().startswith(begin)
    assert len(json.loads((hang / "trace.json").read_text())["traceEvents"]) > 5


def test_what_cannot_be_written_is_said(hang, cli):
    done = cli("export", "hang.ddpnb", "-o", "no/such/folder/page.html", cwd=hang)
    assert done.returncode != 0
    assert "cannot write" in done.stderr and "Traceback" not in done.stderr
