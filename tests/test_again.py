"""Failed tests run once more: a lane whose test fails once, twice, or that does not reach its end."""

from __future__ import annotations

import os
import shutil
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
NOT_COLLECTED = "import nothing_of_that_name"
TOGETHER = """
import sys
def test_first(): assert not hasattr(sys, "spoiled")
def test_spoils(): sys.spoiled = True
def test_second(): assert not hasattr(sys, "spoiled"), "the first failure"
"""
# pytest collects what is garbage only when its report has been written; then the warning is an error.
LATE = """
def test_late():
    class Cycle:
        def __init__(self): self.me = self
        def __del__(self): raise ValueError("late")
    Cycle()
"""
GONE = """
from pathlib import Path
import pytest
seen = Path("seen")
@pytest.mark.parametrize("number", [] if seen.exists() else [1])
def test_gone(number):
    seen.touch()
    assert 0
"""


def clean_environment():
    """Without what a ``make`` above has exported."""
    gone = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "LANES_TOGETHER"}
    kept = {name: value for name, value in os.environ.items() if name not in gone}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@pytest.fixture
def make(tmp_path):
    """The project's Makefile over a folder with one test file; returns a function that makes a target there."""
    (tmp_path / ".venv").mkdir()
    for name in (".installed", ".tested"):
        (tmp_path / ".venv" / name).touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = world\n  beside\nfilterwarnings = error\n")

    def run(target, body, *variables, **environment):
        (tmp_path / "test_lane.py").write_text(f"import pytest\npytestmark = pytest.mark.world\n{body}")
        (tmp_path / "artifacts" / "lanes").mkdir(parents=True, exist_ok=True)
        command = [
            "make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "-o", ".venv/.tested", target,
            f"BIN={Path(sys.executable).parent}", *variables,
        ]  # fmt: skip
        return subprocess.run(
            command, cwd=tmp_path, env={**clean_environment(), **environment},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return run


def again(folder, *lanes):
    return subprocess.run(
        [sys.executable, "-m", "tests.again", "artifacts/lanes", *lanes], cwd=folder, env=clean_environment(),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("def test_well(): pass", 0, ""),
        (ONCE, 0, "FLAKY test_lane.py::test_once: failed, then passed alone"),
        (TOGETHER, 0, "FLAKY test_lane.py::test_second: failed, then passed alone"),
        (ALWAYS, 1, "test_lane.py::test_always failed again: exit status 1"),
        (ENDED, 1, "lane live did not reach its end"),
        (NOT_COLLECTED, 1, "lane live did not reach its end: exit status 2"),
        (LATE, 1, "lane live ended with exit status 1, and no test failed"),
        (GONE, 1, "test_gone[1] was not run to its end again: exit status 4"),
    ],
    ids=["well", "once", "together", "always", "ended", "not collected", "late", "gone"],
)
def test_a_lane_that_ended_so(make, tmp_path, body, status, said):
    lane = make("live", body, "LANES_TOGETHER=1")
    assert lane.returncode == 0, lane.stderr
    done = again(tmp_path, "live")
    assert (done.returncode, said in done.stdout) == (status, True), done.stdout
    assert ("the first failure" in done.stdout) == (body in (ONCE, TOGETHER))
    assert ("FLAKY" in done.stdout) == (body in (ONCE, TOGETHER))


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_a_lane_alone_fails_whatever_the_environment_holds(make):
    assert make("live", ALWAYS, ALL="1").returncode != 0


def test_two_failures_run_in_processes_of_their_own(tmp_path):
    (tmp_path / "test_lane.py").write_text(
        "import os\ndef test_first(): open('pids', 'a').write(f'{os.getpid()} '); assert 0\n"
        "def test_second(): open('pids', 'a').write(f'{os.getpid()} '); assert 0\n"
    )
    lanes = tmp_path / "artifacts" / "lanes"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.again", "--report", str(lanes / "one.json")],
        cwd=tmp_path, env=clean_environment(), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    (lanes / "one.status").write_text(f"{done.returncode}\n")
    assert again(tmp_path, "one").returncode == 1
    first, second, *alone = (tmp_path / "pids").read_text().split()
    assert first == second and len({first, *alone}) == 3
