"""Failed tests once more, alone, after all lanes of ``make test``: those that pass then are printed as FLAKY.

As a pytest plugin (``-p tests.again --report FILE``) it writes what failed in a lane. As a program
(``python -m tests.again FOLDER``) it reads the reports of all lanes and runs their failures again, when nothing else
runs. A test that fails twice, or a lane that did not reach its end, fails the whole run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MOST = 5  # failures in all lanes; more are no accident
SHOWN = 40  # last lines of a first failure


class Reporter:
    """Collects the failures of one lane and writes them when the lane reaches its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failures: dict[str, str] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failures.setdefault(report.nodeid, report.longreprtext)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.path.write_text(json.dumps({"exit_status": int(exitstatus), "failures": self.failures}))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--report", type=Path, help="write what failed to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--report") is not None:
        config.pluginmanager.register(Reporter(config.getoption("--report")))


def main(folder: Path, lanes: list[str]) -> int:
    failures: dict[str, str] = {}
    for lane in lanes:
        path = folder / f"{lane}.json"
        report = (
            json.loads(path.read_text()) if path.exists() else {"exit_status": "none: it was ended", "failures": {}}
        )
        if report["exit_status"] not in (0, 1):
            print(f"lane {lane} did not reach its end: exit status {report['exit_status']}")
            return 1
        failures |= report["failures"]
    if len(failures) > MOST:
        print(f"{len(failures)} tests failed:", *failures, sep="\n  ")
        return 1
    if not failures:
        return 0
    print(f"{len(failures)} tests failed beside others. Running them once more, alone.", flush=True)
    again = folder / "again.json"
    command = [sys.executable, "-m", "pytest", "-p", "tests.again", "--report", str(again), *failures]
    ended = subprocess.run(command, check=False).returncode
    still = json.loads(again.read_text())["failures"] if again.exists() else failures
    for test, first in failures.items():
        if test not in still:
            print(f"FLAKY {test}: failed, then passed alone. Its first failure:", flush=True)
            print("\n".join(first.splitlines()[-SHOWN:]), flush=True)
    return ended


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
