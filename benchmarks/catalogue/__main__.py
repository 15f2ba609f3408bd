"""``python -m benchmarks.catalogue [PREFIX...]``: runs the cases and prints the score.

--ranks 2,4     world sizes to run (default: those that a case asks for)
--peers         what plain PyTorch and TORCH_DISTRIBUTED_DEBUG=DETAIL say of the same scripts (slow)
--quiet         the score only
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import ddpnb
from benchmarks.catalogue.cases import Case, cases
from benchmarks.catalogue.peers import run_peers

RESULTS = Path(__file__).parent / "results.json"


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
    if case.lines:
        # Where nobody is at fault alone, the lines of all count.
        told = chosen.where if chosen is not None else ()
        lines = {site.line for rank, site in told if rank in chosen.culprits or expected is None}
        result["line"] = bool(lines & case.lines)
        result["lines"] = sorted(lines)
    result["outcome_right"] = case.outcome in ("any", run.outcome)
    return result


def run_all(chosen: list[Case], sizes: list[int] | None, quiet: bool) -> list[dict[str, Any]]:
    """Run every case at its sizes; worlds are shared between cases of the same settings."""
    jobs: dict[tuple[Any, ...], list[tuple[Case, int]]] = defaultdict(list)
    for case in chosen:
        for n in [n for n in sizes if n in case.ranks] if sizes else case.ranks:
            key = (n, case.fence, case.patience, tuple(sorted(case.environment.items())))
            jobs[key].append((case, n))
    results = []
    for (n, fence, patience, environment), group in sorted(jobs.items(), key=str):
        with _Environment(dict(environment)), ddpnb.launch(n, fence=fence, patience=patience, quiet=True) as world:
            for case, _ in group:
                began = time.monotonic()
                run = world.run(case.path, stream=None).wait(60)
                result = judge(case, n, run)
                result["seconds"] = round(time.monotonic() - began, 2)
                results.append(result)
                if not quiet:
                    print(_line(result), flush=True)
                world.restart()
    return results


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
    told = f"MISSED {', '.join(marks)}: found {result['found']} {result['named']} {result.get('lines', '')} {result['outcome']}"
    return f"{result['name']:48} {result['n']}  {told if marks else 'right'}"


def score(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares over all runs of faults, and alarms over all controls."""
    faults = [r for r in results if r["expect"] != "none"]
    controls = [r for r in results if r["expect"] == "none"]

    def share(name: str) -> str:
        told = [r[name] for r in faults if name in r]
        return f"{sum(told)}/{len(told)} ({100 * sum(told) / len(told):.1f} %)" if told else "-"

    return {
        "rows": len({r["expect"] for r in faults}),
        "runs": len(faults),
        "recall": share("recall"),
        "class right": share("class"),
        "culprits right": share("culprits"),
        "line right": share("line"),
        "outcome right": share("outcome_right"),
        "controls": len(controls),
        "false alarms": sum(r["alarm"] for r in controls),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catalogue", description=__doc__)
    parser.add_argument("prefixes", nargs="*")
    parser.add_argument("--ranks")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    arguments = parser.parse_args()
    chosen = cases(arguments.prefixes)
    if arguments.peers:
        run_peers(chosen)
        return 0
    sizes = [int(n) for n in arguments.ranks.split(",")] if arguments.ranks else None
    results = run_all(chosen, sizes, arguments.quiet)
    for name, value in score(results).items():
        print(f"{name:16} {value}")
    if not arguments.prefixes and sizes is None:
        RESULTS.write_text(json.dumps(results, indent=0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
