"""Failed tests run once more: a lane whose test fails once, twice, or that does not reach its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ONCE = """
from pathlib import Path
def test_once():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "the first failure"
"""
ALWAYS = "def test_always(): assert 0"
ENDED = "import os\ndef test_ended(): os._exit(1)"


def python(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("def test_well(): pass", 0, ""),
        (ONCE, 0, "FLAKY test_lane.py::test_once: failed, then passed alone"),
        (ALWAYS, 1, "failed beside others"),
        (ENDED, 1, "lane one did not reach its end"),
    ],
)
def test_a_lane_that_ended_so(tmp_path, body, status, said):
    (tmp_path / "test_lane.py").write_text(body)
    python(tmp_path, "pytest", "-p", "tests.again", "--report", "reports/one.json", "test_lane.py")
    done = python(tmp_path, "tests.again", "reports", "one")
    assert (done.returncode, said in done.stdout) == (status, True), done.stdout
    assert ("the first failure" in done.stdout) == (body is ONCE)
