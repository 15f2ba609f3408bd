"""The score of the scoreboard, and its table by finding, next to what the peers say of the same scripts."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results.json"
PEERS = Path(__file__).parent / "peers.json"


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
        "left open (a tie)": sum(bool(r.get("sides")) for r in faults),
        "wrongly named": sum(r.get("wrongly_named", False) for r in faults),
        "line right": share("line"),
        "lines that ran": _ran(results),
        "outcome right": share("outcome_right"),
        "controls": len(controls),
        "false alarms": sum(r["alarm"] for r in controls),
    }


def _ran(results: list[dict[str, Any]]) -> str:
    """The share of all lines that findings name which the named rank really executed."""
    places = sum(r["places"] for r in results if "places" in r)
    ran = places - sum(len(r["not_run"]) for r in results if "places" in r)
    return f"{ran}/{places} ({100 * ran / places:.1f} %)" if places else "-"


def report() -> str:
    """Markdown: the score by world size, and a line for each finding."""
    results = json.loads(RESULTS.read_text())
    peers = json.loads(PEERS.read_text()) if PEERS.exists() else {}
    sizes = sorted({r["n"] for r in results})
    scores = {"all": score(results), **{f"{n} ranks": score([r for r in results if r["n"] == n]) for n in sizes}}
    lines = ["| | " + " | ".join(scores) + " |", "|---|" + "---|" * len(scores)]
    lines += [f"| {name} | " + " | ".join(str(s[name]) for s in scores.values()) + " |" for name in scores["all"]]
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        rows[result["expect"]].append(result)
    lines += [
        "",
        "| finding | runs | recall | class | culprits | line | plain PyTorch | DETAIL |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for code, runs in sorted(rows.items()):
        if code == "none":
            continue
        told = [_share(runs, name) for name in ("recall", "class", "culprits", "line")]
        names = {run["name"] for run in runs}
        beside = [_kinds([peers[n][which] for n in sorted(names) if n in peers]) for which in ("plain", "detail")]
        lines.append(f"| {code} | {len(runs)} | {' | '.join(told)} | {' | '.join(beside)} |")
    return "\n".join(lines)


def _share(runs: list[dict[str, Any]], name: str) -> str:
    told = [run[name] for run in runs if name in run]
    return f"{sum(told)}/{len(told)}" if told else "-"


def _kinds(said: list[str]) -> str:
    """``2 error, 1 hang, 1 silent``: whether it was reported in words, cut off, or not noticed."""
    counts: dict[str, int] = defaultdict(int)
    for text in said:
        word = text.split()[0]
        counts[word if word in ("silent", "hang", "abort") else "error"] += 1
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "-"
