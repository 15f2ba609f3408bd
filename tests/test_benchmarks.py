"""The table of all measurements: ratios, goals, failures; and that a slice of it gives rows. No time is asserted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import __main__ as table
from benchmarks import machine, show
from benchmarks.hangs import Said, named
from benchmarks.mutants import __main__ as mutants
from benchmarks.mutants.mutants import MUTANTS
from benchmarks.rows import Goal, Row, quantity, spread, verdict

ROOT = Path(__file__).parents[1]
LONGEST_S = 840  # on a busy machine
# The other parts start dozens of processes: they take eight minutes beside other tests, and slow these. By hand: --quick.
SLICE = ("door", "verdict", "snapshot", "reports", "growth", "timeline", "bisection", "reenact")


def test_a_ratio_is_that_of_the_pairs_where_there_are_pairs():
    assert Row("p", "w", (1.0, 20.0, 3.0), theirs=(2.0, 10.0, 6.0)).ratio == 0.5
    assert Row("p", "w", (1.0, 3.0), theirs=(4.0,)).ratio == 0.5
    assert Row("p", "w", (1.0,)).ratio is None and Row("p", "w", (1.0,), theirs=(0.0,)).ratio is None


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal(0.6), True),
        (Goal(0.5), False),
        (Goal(0.7, least=True), False),
        (Goal(-1.0, "added"), True),
        (Goal(-1.1, "added"), False),
        (Goal(2.0, "median"), True),
        (Goal(2.0, "p95"), False),
        (Goal(3.0, "most"), True),
    ],
)
def test_a_goal_limits_what_it_says(goal, met):
    row = Row("p", "w", (1.0, 2.0, 3.0), theirs=(3.0, 3.0, 5.0), goal=goal)
    assert row.met is met
    assert verdict(row).startswith("met" if met else "not met: ")


def test_without_a_result_a_goal_is_neither_met_nor_missed():
    assert Row("p", "w", goal=Goal(1.0)).met is None
    assert verdict(Row("p", "w", goal=Goal(1.0), failure="it did not start")) == "FAILED"


def test_values_are_written_with_a_fitting_unit():
    assert [quantity(value, "s") for value in (1800.0, 2.456, 0.2314, 1.03e-5)] == [
        "1,800 s",
        "2.46 s",
        "231 ms",
        "10.3 us",
    ]
    assert quantity(889.4, "MB") == "889 MB"
    assert spread((1.0, 2.0, 4.0), "s") == "2 s (1 s to 4 s)"
    assert spread((), "s") == "-"


def test_a_measurement_that_fails_keeps_its_rows_and_says_why():
    def measure(quick):
        """what it measures"""
        yield Row("p", "one", (1.0,))
        raise RuntimeError("no\nranks")

    first, failed = show.measured("p", measure, quick=True)
    assert (first.what, failed.what, failed.failure) == ("one", "what it measures", "RuntimeError: no ranks")
    assert "| FAILED | RuntimeError: no ranks |" in show.markdown([first, failed])


def test_a_failed_row_makes_the_exit_status_and_does_not_stop_the_others(monkeypatch, capsys, tmp_path):
    def fails(quick):
        raise OSError("disk full")

    def works(quick):
        yield Row("p", "a | b", (1.0,), peer="other", theirs=(2.0,))

    monkeypatch.setattr(show, "fails", fails, raising=False)
    monkeypatch.setattr(show, "works", works, raising=False)
    monkeypatch.setattr(table, "PARTS", {"broken": ("show:fails", "nowhere:at_all"), "good": ("show:works",)})
    monkeypatch.setattr(machine, "_LOOK_S", 0.01)
    assert table.main(["--json", str(tmp_path / "t.json"), "--markdown", str(tmp_path / "t.md")]) == 1
    assert table.main(["--only", "good"]) == 0
    assert "disk full" in capsys.readouterr().out
    rows = json.loads((tmp_path / "t.json").read_text())["rows"]
    assert [bool(row["failure"]) for row in rows] == [True, True, False]
    assert rows[2]["ratio"] == 0.5
    assert "| a \\| b |" in (tmp_path / "t.md").read_text()


def test_after_ctrl_c_what_was_measured_is_shown(monkeypatch, capsys):
    def stopped(quick):
        yield Row("p", "the first", (1.0,))
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "stopped", stopped, raising=False)
    monkeypatch.setattr(table, "PARTS", {"p": ("show:stopped",), "never": ("show:nothing",)})
    monkeypatch.setattr(machine, "_LOOK_S", 0.01)
    assert table.main([]) == 1
    written = capsys.readouterr().out
    assert "the first" in written and "interrupted" in written


def test_the_table_takes_its_place_in_a_document(tmp_path):
    path = tmp_path / "RESULTS.md"
    path.write_text(f"# Results\n\n{show.BEGIN}\nold\n{show.END}\n\nmore\n")
    for text in ("| first \\1 |\n", "| second |\n"):
        show.put(path, text)
        assert path.read_text() == f"# Results\n\n{show.BEGIN}\n{text}{show.END}\n\nmore\n"
    show.put(tmp_path / "new.md", "| row |\n")
    assert (tmp_path / "new.md").read_text() == "| row |\n"


def test_the_head_says_whether_the_machine_was_calm():
    found = machine.describe() | {
        "load": {"before": 0.0, "during": 0.5, "warning": "WARNING: not calm"},
        "seconds": 3.0,
    }
    said = machine.head(found)
    assert f"torch {found['torch']}" in said and f"{found['cores']} cores" in said and "50% during" in said
    assert "WARNING" in said
    assert "WARNING" not in machine.head(found | {"load": {"before": 0.0, "during": 0.01, "warning": ""}})


def test_culprits_are_read_from_what_the_peers_say():
    assert named("[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 3000 ms") == {1, 2}
    assert named("Detected mismatch between collectives on ranks. Rank 0 is running ..., but Rank 3 is running") == {
        0,
        3,
    }
    assert not named("Timed out waiting 3000ms for recv operation to complete")


def test_only_an_error_that_came_by_the_time_out_is_extrapolated():
    assert Said(3.05, "", frozenset()).extrapolated(1800.0) == pytest.approx(1800.05)
    assert Said(0.1, "", frozenset()).extrapolated(1800.0) == 0.1
    assert Said(None, "", frozenset()).extrapolated(1800.0) is None


def test_each_mutant_fits_the_source():
    assert mutants.problems() == []
    assert len(MUTANTS) >= 60


class Copies:
    """Stands for the copy: which tests fail with the mistake, and which without it too."""

    def __init__(self, failing, broken=()):
        self.failing_ones, self.broken = failing, broken
        self.made = False

    @contextmanager
    def mistaken(self, _mutant):
        self.made = True
        yield
        self.made = False

    def failing(self, *arguments):
        lane = "full" if "--full" in arguments else "fast"
        left_out = {after for option, after in pairwise(arguments) if option == "--deselect"}
        where = "others" if "-n" in arguments else "near"
        ones = (
            self.failing_ones.get((lane, where), ()) if self.made else [one for one in self.broken if one in arguments]
        )
        return next((one for one in ones if one not in left_out), "")


@pytest.mark.parametrize(
    ("failing", "broken", "lane", "test"),
    [
        ({("fast", "near"): ["tests/a.py::one"]}, (), "fast", "tests/a.py::one"),
        ({("fast", "others"): ["tests/b.py::two"], ("full", "near"): ["tests/a.py::x"]}, (), "fast", "tests/b.py::two"),
        ({("full", "others"): ["tests/c.py::three"]}, (), "full", "tests/c.py::three"),
        ({("fast", "near"): ["tests/a.py::one", "tests/a.py::two"]}, ["tests/a.py::one"], "fast", "tests/a.py::two"),
        ({("fast", "near"): ["tests/a.py::one"]}, ["tests/a.py::one"], "", ""),
        ({("fast", "near"): ["pytest ended with None (time-out)"]}, (), "fast", "pytest ended with None (time-out)"),
        ({}, (), "", ""),
    ],
)
def test_a_mistake_is_found_by_the_first_test_that_passes_without_it(failing, broken, lane, test):
    result = mutants.found(Copies(failing, broken), MUTANTS[0], ["fast", "full"], near_only=False)
    assert (result.lane, result.test) == (lane, test)


def test_the_share_of_the_fast_lane_is_that_of_what_all_find():
    lanes = ["fast", "fast", "fast", "full", ""]
    text = mutants.summary([mutants.Result(str(n), "a/b.py", lane) for n, lane in enumerate(lanes)])
    assert "all lanes find 4 (80 %)" in text and "finds 3: 75 %" in text and "not found: 4 (ddpnb/a/b.py)" in text


@pytest.mark.full
@pytest.mark.world
@pytest.mark.browser
@pytest.mark.timeout(LONGEST_S + 30)
def test_a_slice_gives_rows(tmp_path):
    """In one process, as a user runs it."""
    path = tmp_path / "table.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", *SLICE, "--json", str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    job = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = job.communicate(timeout=LONGEST_S)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 0, output[-6000:]
    result = json.loads(path.read_text())
    rows = result["rows"]
    assert {row["part"] for row in rows} == set(SLICE)
    assert set(result["machine"]["seconds_of_parts"]) == set(SLICE)
    samples = [
        Row(**{name: row[name] for name in ("part", "what")}, ours=tuple(row["ours"]), theirs=tuple(row["theirs"]))
        for row in rows
    ]
    assert all(row.finite for row in samples)
    empty = {row.what for row in samples if not row.ours}
    assert all("DETAIL" in what for what in empty), empty
