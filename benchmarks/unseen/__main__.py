"""``python -m benchmarks.unseen BATCH...``: runs programs with ``ddpnb run`` and holds the diagnoses against what is expected.

A batch is ``first``, ``second``, ``third`` or ``fourth`` of ``batches.tar.xz``, whose results are in ``RESULTS.md``, or a folder. A program is a folder with ``train.py`` and ``expect.json``: the codes that are right (none: it is healthy), the ranks at fault for
each number of ranks, where a tie is honest, and the function and the lines at fault.

--jobs N        programs at a time (default: 1)
--python PATH   the interpreter for programs with ``"env": "matrix"``, which need frameworks (else these are left out)
--out FILE      each run as a line of JSON
--report FILE   only the score of such a file
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_BATCHES = Path(__file__).parent / "batches.tar.xz"
_TIMEOUT_S = 150


def run(folder: Path, ranks: int, python: str) -> dict[str, Any]:
    """One run of one program; its verdict as numbers."""
    expect = json.loads((folder / "expect.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "diagnosis.json"
        command = [
            python,
            "-m",
            "ddpnb",
            "run",
            "-n",
            str(ranks),
            "--patience",
            "5",
            "--end-after-patience",
            "--json",
            str(out),
            "train.py",
        ]
        try:
            done = subprocess.run(
                [*command, *map(str, expect.get("args", []))], cwd=folder, capture_output=True, text=True,
                timeout=_TIMEOUT_S, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            status, text = done.returncode, done.stdout[-6000:] + done.stderr[-2000:]
        except subprocess.TimeoutExpired:
            status, text = -1, "timed out"
        diagnosis = json.loads(out.read_text()) if out.exists() else None
    return {"name": folder.name, "n": ranks, "status": status, **judge(expect, ranks, diagnosis), "text": text}


def judge(expect: dict[str, Any], ranks: int, diagnosis: dict[str, Any] | None) -> dict[str, Any]:
    """What is right of a diagnosis."""
    findings = diagnosis["findings"] if diagnosis else []
    serious = [finding for finding in findings if finding["severity"] != "note"]
    found = {"codes": [finding["code"] for finding in serious], "outcome": diagnosis and diagnosis["outcome"]}
    if expect["healthy"]:
        return found | {"healthy": True, "alarm": bool(serious) or found["outcome"] != "ok"}
    right = [finding for finding in findings if finding["code"] in expect["codes"]]
    first = serious[0] if serious else findings[0] if findings else None
    chosen = right[0] if right else first
    result = found | {"healthy": False, "recall": bool(serious or right), "class": bool(first and first in right)}
    if chosen is None:
        return result | {"culprits": False, "line": False, "function": False}
    wanted = set(expect["culprits"].get(str(ranks), []))
    open_tie = bool(chosen["sides"]) and not chosen["culprits"]
    places = [place for place in chosen["where"] if open_tie or place["rank"] in chosen["culprits"]]
    at = {(Path(place["file"]).name, place["line"]) for place in places}
    function = expect["function"]
    named = Path(function["file"]).name
    return result | {
        "culprits": set(chosen["culprits"]) == wanted,
        "tie": open_tie,
        "tie_is_honest": open_tie and bool(expect["sides_ok"].get(str(ranks))),
        "named": chosen["culprits"],
        "certainty": chosen["certainty"],
        "function": any(file == named and function["first"] <= line <= function["last"] for file, line in at),
        "line": any((Path(file).name, line) in at for file, line in expect["lines"]),
        "places": sorted(f"{file}:{line}" for file, line in at),
    }


def score(results: Iterable[dict[str, Any]]) -> str:
    """The table of all runs."""
    every = list(results)
    broken, healthy = [r for r in every if not r["healthy"]], [r for r in every if r["healthy"]]
    rows = [("runs of broken programs", len(broken), len(broken))]
    rows += [
        (name, sum(bool(r[key]) for r in broken), len(broken))
        for name, key in (("recall", "recall"), ("class", "class"))
    ]
    rows += [
        ("culprits, or a tie where nothing tells", sum(r["culprits"] or r["tie_is_honest"] for r in broken if "tie" in r), len(broken)),
        ("... or any open tie", sum(r["culprits"] or r["tie"] for r in broken if "tie" in r), len(broken)),
        ("a line in the function at fault", sum(r["function"] for r in broken), len(broken)),
        ("a deciding line", sum(r["line"] for r in broken), len(broken)),
        ("proven, with wrong culprits", sum(_wrongly_proven(r) for r in broken), len(broken)),
        ("false alarms", sum(r["alarm"] for r in healthy), len(healthy)),
    ]  # fmt: skip
    return "\n".join(f"| {name} | {count}/{of} ({count / max(of, 1):.1%}) |" for name, count, of in rows)


def _wrongly_proven(result: dict[str, Any]) -> bool:
    return result.get("certainty") == "proven" and not (result["culprits"] or result["tie"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batches", nargs="*", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--python", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--ranks", default="2,3,4")
    args = parser.parse_args()
    if args.report:
        print(score(json.loads(line) for line in args.report.read_text().splitlines()))
        return
    with tempfile.TemporaryDirectory() as unpacked:
        with tarfile.open(_BATCHES) as batches:
            batches.extractall(unpacked, filter="data")
        folders = [batch if batch.is_dir() else Path(unpacked, batch) for batch in args.batches]
        for folder in folders:
            if not any(folder.glob("**/expect.json")):
                parser.error(
                    f"{folder.name} is no batch: there is first, second, third, fourth, or a folder of programs."
                )
        _run_all(folders, [int(size) for size in args.ranks.split(",")], args.python, args.jobs, args.out)


def _run_all(folders: Iterable[Path], sizes: Iterable[int], python: str, at_once: int, out: Path | None) -> None:
    jobs: list[tuple[Path, int, str]] = []
    for expected in sorted(path for folder in folders for path in folder.glob("**/expect.json")):
        expect = json.loads(expected.read_text())
        interpreter = python if expect.get("env") == "matrix" else sys.executable
        jobs += [(expected.parent.absolute(), n, interpreter) for n in sizes if n in expect["ranks"] and interpreter]
    results: list[dict[str, Any]] = []
    with ThreadPoolExecutor(at_once) as pool:
        for result in pool.map(lambda job: run(*job), jobs):
            results.append(result)
            print(json.dumps({key: value for key, value in result.items() if key != "text"}), flush=True)
            if out:
                with out.open("a") as file:
                    file.write(json.dumps(result) + "\n")
    print(score(results))


if __name__ == "__main__":
    main()
