"""PyTorch's own distributed tests, plainly, under ``ddpnb run --`` and under ``ddpnb run --record --``.

Each test that passes plainly must be reached and pass under ddpnb, and each command must end. Prints a table and what
differs, and exits with status 1 if anything does. All results are in one file: a second call continues where the first one
ended, and runs nothing again that is known (``--again``: everything). ``make torch-tests`` runs all, which takes hours;
``python -m tests.harmless.torch_tests --suite rpc --only dist_autograd --limit 30`` some.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SUITES = Path(__file__).parent / "torch_suites"
PLAIN = "plain"
_DDPNB = [sys.executable, "-m", "ddpnb", "run"]
_TEST_S, _START_S = 120.0, 60.0  # the longest that one test, and the start of a command, may take plainly
_SLOWER = 3  # times as much under ddpnb
UNREACHED = "not reached"


def prefixes(folder: str) -> dict[str, list[str]]:
    """What stands before the command, by mode."""
    return {
        PLAIN: [],
        "run": [*_DDPNB, "--json", f"{folder}/verdict.json", "--"],
        "record": [*_DDPNB, "--record", "--dir", f"{folder}/records", "--"],
    }


MODES = tuple(prefixes(""))


class Results:
    """What is known, in a file that is written after each command.

    ``tests``: by suite, mode and test, outcome and seconds. ``commands``: each with its suite, mode, tests, seconds, exit
    status (None: it did not end), outcome and errors of the diagnosis.
    """

    def __init__(self, path: Path, *, again: bool = False) -> None:
        self._path = path
        self.known: dict[str, Any] = {"tests": {}, "commands": []}
        if path.exists() and not again:
            self.known = json.loads(path.read_text())

    def of(self, suite: str, mode: str) -> dict[str, dict[str, Any]]:
        return self.known["tests"].setdefault(suite, {}).setdefault(mode, {})

    def commands(self, suite: str, mode: str) -> list[dict[str, Any]]:
        return [one for one in self.known["commands"] if (one["suite"], one["mode"]) == (suite, mode)]

    def add(self, command: Mapping[str, Any], tests: Mapping[str, Mapping[str, Any]]) -> None:
        self.known["commands"].append(command)
        self.of(command["suite"], command["mode"]).update(tests)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self.known, indent=1))


def passed(results: Results, suite: str, mode: str) -> list[str]:
    return [test for test, result in results.of(suite, mode).items() if result["outcome"] == "passed"]


def differences(results: Results, suite: str, mode: str) -> list[str]:
    """What is not as without ddpnb, a line each."""
    found, known = [], results.of(suite, mode)
    for test in passed(results, suite, PLAIN):
        if test in known and known[test]["outcome"] != "passed":
            found.append(f"{suite} {mode}: {test} {known[test]['outcome']}; plainly it passes")
    for command in results.commands(suite, mode):
        tests = f"{command['tests'][0]} and {len(command['tests']) - 1} more"
        if command["status"] is None:
            found.append(f"{suite} {mode}: the command with {tests} did not end")
        elif command["status"] and all(known[test]["outcome"] == "passed" for test in command["tests"]):
            found.append(f"{suite} {mode}: status {command['status']} of the command with {tests}, all of which passed")
        found += [f"{suite} {mode}: found with {tests}: {error}" for error in command["errors"]]
    return found


def table(results: Results) -> str:
    """A row for each suite and mode. The ratio is of the seconds of the tests that passed plainly too."""
    rows = ["suite       mode    tests  passed  not passed  not reached  commands  not ended  seconds  ratio"]
    for suite in results.known["tests"]:
        plain = results.of(suite, PLAIN)
        for mode in MODES:
            known, commands = results.of(suite, mode), results.commands(suite, mode)
            if not known:
                continue
            good = [test for test in passed(results, suite, mode) if test in passed(results, suite, PLAIN)]
            seconds = sum(known[test]["seconds"] for test in good)
            ratio = seconds / (sum(plain[test]["seconds"] for test in good) or 1)
            unreached = sum(result["outcome"] == UNREACHED for result in known.values())
            failed = len(known) - unreached - len(passed(results, suite, mode))
            hung = sum(command["status"] is None for command in commands)
            rows.append(
                f"{suite:11} {mode:7} {len(known):5}  {len(good):6}  {failed:10}  {unreached:11}  "
                f"{len(commands):8}  {hung:9}  {seconds:7.0f}  {ratio:5.2f}"
            )
    return "\n".join(rows)


@contextmanager
def _place() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="torch-tests-", ignore_cleanup_errors=True) as folder:
        yield folder


def _environment(folder: str) -> dict[str, str]:
    """As PyTorch's ``run_test.py`` sets it for gloo."""
    given = {
        "BACKEND": "gloo", "WORLD_SIZE": "2", "TEMP_DIR": folder, "INIT_METHOD": f"file://{folder}/shared_init_file",
        "TMPDIR": folder, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    return {**os.environ, **given}


def run_command(command: Sequence[str], folder: str, limit_s: float) -> int | None:
    """Its exit status; None if it had to be killed. All that it printed is in ``output.txt``."""
    with open(f"{folder}/output.txt", "wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=_environment(folder), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def names(suite: str) -> list[str]:
    """All tests of a suite that are not skipped from the beginning."""
    with _place() as folder:
        if run_command([sys.executable, str(SUITES / f"{suite}.py"), f"{folder}/names"], folder, 5 * _START_S):
            raise SystemExit(Path(folder, "output.txt").read_text()[-2000:])
        return Path(folder, "names").read_text().split()


def run_tests(suite: str, mode: str, tests: Sequence[str], limit_s: float, kept: Path, results: Results) -> None:
    """One command with these tests; of those that it did not come to, only the first is settled."""
    with _place() as folder:
        file = Path(folder, "results.jsonl")
        began = time.monotonic()
        program = [sys.executable, str(SUITES / f"{suite}.py"), str(file), *tests]
        status = run_command([*prefixes(folder)[mode], *program], folder, limit_s)
        seconds = round(time.monotonic() - began, 1)
        lines = file.read_text().splitlines() if file.exists() else []
        found = {one.pop("test"): one for one in map(json.loads, lines)}
        verdict = json.loads(path.read_text()) if (path := Path(folder, "verdict.json")).exists() else {}
        errors = [one["summary"] for one in verdict.get("findings", ()) if one["severity"] == "error"]
        unreached = [test for test in tests if test not in found]
        if unreached:
            found[unreached[0]] = {"outcome": UNREACHED, "seconds": 0}
        settled = [test for test in tests if test in found]
        if status is None or errors or any(found[test]["outcome"] not in ("passed", "skipped") for test in settled):
            kept.mkdir(parents=True, exist_ok=True)
            number = len(results.known["commands"])
            Path(folder, "output.txt").replace(kept / f"{suite}-{mode}-{number}.txt")
        command = {
            "suite": suite,
            "mode": mode,
            "tests": settled,
            "seconds": seconds,
            "status": status,
            "errors": errors,
        }
        results.add({**command, "outcome": verdict.get("outcome")}, found)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.harmless.torch_tests", description=__doc__)
    parser.add_argument("--suite", choices=("distributed", "rpc"), action="append", help="default: both")
    parser.add_argument("--mode", choices=MODES[1:], action="append", help="beside plainly (default: both)")
    parser.add_argument("--only", default="", metavar="TEXT", help="tests in whose names this occurs")
    parser.add_argument("--limit", type=int, metavar="N", help="so many of them, evenly spread")
    parser.add_argument("--at-once", type=int, default=20, metavar="N", help="tests in one command (default: 20)")
    parser.add_argument("--results", type=Path, default=Path("artifacts/torch-tests.json"), metavar="FILE")
    parser.add_argument("--again", action="store_true", help="forget what is known")
    arguments = parser.parse_args(given)
    results = Results(arguments.results.absolute(), again=arguments.again)
    kept = arguments.results.absolute().with_suffix("")
    modes = [PLAIN, *(arguments.mode or MODES[1:])]
    different: list[str] = []
    for suite in arguments.suite or ("distributed", "rpc"):
        wanted = [test for test in names(suite) if arguments.only in test]
        if arguments.limit is not None:
            wanted = wanted[:: max(1, len(wanted) // arguments.limit)][: arguments.limit]
        for start in range(0, len(wanted), arguments.at_once):
            chunk = wanted[start : start + arguments.at_once]
            for mode in modes:
                good = chunk if mode == PLAIN else [test for test in chunk if test in passed(results, suite, PLAIN)]
                while left := [test for test in good if test not in results.of(suite, mode)]:
                    limit_s = _START_S + _TEST_S * len(left)
                    if mode != PLAIN:
                        limit_s = _SLOWER * (_START_S + sum(results.of(suite, PLAIN)[test]["seconds"] for test in left))
                    run_tests(suite, mode, left, limit_s, kept, results)
                    print(".", end="", file=sys.stderr, flush=True)
        different += [line for mode in modes[1:] for line in differences(results, suite, mode)]
    print(f"\n{table(results)}\n", *different, sep="\n")
    print(f"{len(different)} differences; {arguments.results}, outputs in {kept}" if different else "no difference")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
