"""``python -m benchmarks.catalogue [PREFIX...]``: runs the cases and prints the score.

--ranks 2,4     world sizes to run (default: those that a case asks for)
--peers         what plain PyTorch and TORCH_DISTRIBUTED_DEBUG=DETAIL say of the same scripts (slow)
--report        the table of all results so far (results.json, peers.json), as Markdown
--quiet         the score only
"""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import ddpnb
from benchmarks import executed
from benchmarks.catalogue.cases import Case, cases
from benchmarks.catalogue.peers import run_peers
from benchmarks.catalogue.report import RESULTS, report, score


def judge(case: Case, n: int, run: Any) -> dict[str, Any]:
    """What came out, held against what should."""
    findings = [f for f in run.diagnosis.findings if f.severity != "note"]
    good = {case.expect, *case.also}
    result: dict[str, Any] = {
        "name": case.name, "n": n, "expect": case.expect, "outcome": run.outcome, "done": run.done,
        "found": [f.code for f in findings],
    }  # fmt: skip
    if case.expect == "none":
        result["alarm"] = bool(findings) or run.outcome != "ok"
        return result
    wanted = next((f for f in findings if f.code == case.expect), None) or next(
        (f for f in findings if f.code in good), None
    )
    notes = [f for f in run.diagnosis.findings if f.code in good]
    result["recall"] = wanted is not None or bool(notes)
    first = findings[0] if findings else notes[0] if notes else None  # a note counts where nothing else is said
    result["class"] = first is not None and first.code in good
    chosen = wanted or (notes[0] if notes else None)
    expected = case.culprits_of(n)
    result["culprits"] = chosen is not None and (expected is None or set(chosen.culprits) == expected)
    result["named"] = list(chosen.culprits) if chosen is not None else None
    result["sides"] = [list(side) for side in chosen.sides] if chosen is not None else []
    # Ranks that were named and are not at fault; a tie that is left open names none.
    result["wrongly_named"] = (
        chosen is not None and expected is not None and not chosen.sides and set(chosen.culprits) != expected
    )
    if case.lines:
        # Where nobody is at fault alone, the lines of all count.
        told = chosen.where if chosen is not None else ()
        lines = {site.line for rank, site in told if not chosen.culprits or rank in chosen.culprits or expected is None}
        result["line"] = bool(lines & case.lines)
        result["lines"] = sorted(lines)
    result["outcome_right"] = case.outcome in ("any", run.outcome)
    return result


def run_all(chosen: list[Case], sizes: list[int] | None, quiet: bool) -> list[dict[str, Any]]:
    """Run every case at its sizes; worlds are shared between cases of the same settings."""
    jobs: dict[tuple[Any, ...], list[tuple[Case, int]]] = defaultdict(list)
    for case in chosen:
        for n in [n for n in sizes if n in case.ranks] if sizes else case.ranks:
            key = (n, tuple(sorted(case.environment.items())))
            jobs[key].append((case, n))
    results = []
    for (n, environment), group in sorted(jobs.items(), key=str):
        with _Environment(dict(environment)), executed.recording() as ran, ddpnb.launch(n, quiet=True) as world:
            for case, _ in group:
                ran.clear()
                began = time.monotonic()
                run = world.run(
                    case.path, stream=None, fence=case.fence, patience=case.patience, end_after_patience=True
                ).wait(60)
                result = judge(case, n, run)
                result["places"], wrong = ran.check(run.diagnosis)
                result["not_run"] = [f"rank {rank}: {Path(file).name}:{line}" for rank, file, line in wrong]
                result["seconds"] = round(time.monotonic() - began, 2)
                results.append(result)
                if not quiet:
                    print(_line(result), flush=True)
                well = run.done and all(ending is not None and ending.well for ending in run.endings.values())
                if case.expect == "DDP107":  # it has given the interpreter another version, for good
                    world.restart(range(n))
                elif not well:
                    world.restart()
                _keep(result)
    return results


def _keep(result: dict[str, Any]) -> None:
    """Into the file of all results, in the place of an earlier one of the same script and size."""
    with RESULTS.open("a+") as file:  # several of these may run side by side
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        known = {(one["name"], one["n"]): one for one in (json.loads(text) if text else [])}
        known[result["name"], result["n"]] = result
        file.truncate(0)
        file.write("[\n" + ",\n".join(json.dumps(known[key]) for key in sorted(known)) + "\n]\n")


class _Environment:
    """Variables that the ranks of a world inherit from their launcher."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def __enter__(self) -> None:
        import os

        self._before = {name: os.environ.get(name) for name in self._values}
        os.environ.update(self._values)

    def __exit__(self, *_: object) -> None:
        import os

        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _line(result: dict[str, Any]) -> str:
    if result["expect"] == "none":
        word = f"ALARM {result['found']} {result['outcome']}" if result["alarm"] else "quiet"
        return f"{result['name']:48} {result['n']}  {word}"
    marks = [name for name in ("recall", "class", "culprits", "line", "outcome_right") if result.get(name) is False]
    marks += [f"lines that never ran {result['not_run']}"] if result.get("not_run") else []
    told = f"MISSED {', '.join(marks)}: found {result['found']} {result['named'] or result['sides']} {result.get('lines', '')} {result['outcome']}"
    return f"{result['name']:48} {result['n']}  {told if marks else 'right'}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catalogue", description=__doc__)
    parser.add_argument("prefixes", nargs="*")
    parser.add_argument("--ranks")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    arguments = parser.parse_args()
    chosen = cases(arguments.prefixes)
    if arguments.peers:
        run_peers(chosen)
        return 0
    if arguments.report:
        print(report())
        return 0
    sizes = [int(n) for n in arguments.ranks.split(",")] if arguments.ranks else None
    results = run_all(chosen, sizes, arguments.quiet)
    for name, value in score(results).items():
        print(f"{name:16} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
