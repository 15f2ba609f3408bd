"""Failed tests once more, alone, after all lanes of ``make test``: those that pass then are printed as FLAKY.

As a pytest plugin (``-p tests.again --report FILE``) it writes what failed in a lane. As a program
(``python -m tests.again FOLDER LANE...``) it reads the report (LANE.json) and the exit status (LANE.status) of each lane
and runs the failures again, each in a process of its own, when nothing else runs. A test that fails twice, a lane that
did not reach its end, or a lane whose exit status no failed test explains, fails the whole run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MOST = 5  # failures in all lanes; more are no accident
LONGEST = 8  # files that are named
SHOWN = 40  # last lines of a first failure


class Reporter:
    """Collects what passed and failed in one lane and writes it when the lane reaches its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.passed: list[str] = []
        self.failures: dict[str, str] = {}
        self.durations: dict[str, float] = {}  # of each file, in seconds
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self.durations[file] = self.durations.get(file, 0.0) + report.duration
        if report.failed:
            self.failures.setdefault(report.nodeid, report.longreprtext)
        elif report.passed and report.when == "call":
            self.passed.append(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        content = {
            "exit_status": int(exitstatus),
            "passed": self.passed,
            "failures": self.failures,
            "durations": self.durations,
        }
        self.path.write_text(json.dumps(content))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--report", type=Path, help="write what passed and what failed to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--report") is not None:
        config.pluginmanager.register(Reporter(config.getoption("--report")))


def main(folder: Path, lanes: list[str]) -> int:
    failures: dict[str, str] = {}
    for lane in lanes:
        report, status = _read(folder / f"{lane}.json"), _status(folder / f"{lane}.status")
        if status not in ("0", "1") or report.get("exit_status") not in (0, 1):
            print(f"lane {lane} did not reach its end: exit status {status}")
            return 1
        if status != "0" and not report["failures"]:
            print(f"lane {lane} ended with exit status {status}, and no test failed: its output says why")
            return 1
        failures |= report["failures"]
        longest = sorted(report["durations"].items(), key=lambda one: -one[1])[:LONGEST]
        print(f"lane {lane}: longest are", ", ".join(f"{file} ({seconds:.0f} s)" for file, seconds in longest))
    if len(failures) > MOST:
        print(f"{len(failures)} tests failed:", *failures, sep="\n  ")
        return 1
    if failures:
        print(f"{len(failures)} tests failed beside others. Running each once more, alone.", flush=True)
    return max([_run_again(folder / "again.json", test, first) for test, first in failures.items()], default=0)


def _run_again(report: Path, test: str, first: str) -> int:
    """Run one test in a process of its own: 0 if it passes, which is said with its first failure, else 1."""
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "tests.again", "--report", str(report), test]
    status = subprocess.run(command, check=False).returncode
    again = _read(report)
    if status == 0 and test in again["passed"]:
        print(f"FLAKY {test}: failed, then passed alone. Its first failure:", flush=True)
        print("\n".join(first.splitlines()[-SHOWN:]), flush=True)
        return 0
    what = "failed again" if test in again.get("failures", ()) else "was not run to its end again"
    print(f"{test} {what}: exit status {status}", flush=True)
    return 1


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _status(path: Path) -> str:
    return path.read_text().strip() if path.exists() else "none: it was ended"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
