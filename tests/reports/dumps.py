"""Handmade dumps of the flight recorder, in the layout of its versions."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

from ddpnb.recording.calls import Call
from ddpnb.reports import files, flight_recorder
from ddpnb.reports.facts import Calls, Fact, Unknown

START = 1_795_423_643_000_000_000
TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
FRAMES = [
    {"name": "all_reduce", "filename": TORCH, "line": 2696},
    {"name": "wrapper", "filename": "/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", "line": 83},
    {"name": "average", "filename": "/home/me/train.py", "line": 12},
    {"name": "main", "filename": "/home/me/train.py", "line": 30},
    {"name": "<module>", "filename": "/home/me/train.py", "line": 44},
]
DEFAULT = ("0", "default_pg")
VERSIONS = ("2.10", "2.7", "2.4", "2.2", "2.0", "1.5", "1.4", "1.2", "1.1", "1.0", "")


def call(
    number: int,
    seq: int,
    name: str = "nccl:all_reduce",
    state: str = "completed",
    *,
    group: tuple[str, str] = DEFAULT,
    sizes: list[list[int]] | None = None,
    dtype: str = "Float",
    p2p: int | None = None,
    retired: bool | None = None,
    took_s: float = 0.01,
    frames: list[dict[str, Any]] | None = None,
    timeout_ms: int = 600_000,
) -> dict[str, Any]:
    """An entry of version 2.10."""
    created = START + number * 50_000_000
    done = state == "completed"
    sizes = [[4, 8]] if sizes is None else sizes
    return {
        "frames": FRAMES if frames is None else frames,
        "record_id": number,
        "pg_id": int(group[0]) if group[0].isdecimal() else 7,
        "process_group": group,
        "thread_name": "python3",
        "thread_id": "140106793020288",
        "collective_seq_id": seq,
        "p2p_seq_id": p2p or 0,
        "op_id": number + 1,
        "profiling_name": name,
        "time_created_ns": created,
        "input_sizes": sizes,
        "input_dtypes": [dtype] * len(sizes),
        "output_sizes": sizes,
        "output_dtypes": [dtype] * len(sizes),
        "state": state,
        "time_discovered_started_ns": created + 1000 if state != "scheduled" else None,
        "time_discovered_completed_ns": created + int(took_s * 1e9) if done else None,
        "retired": done if retired is None else retired,
        "timeout_ms": timeout_ms,
        "is_p2p": p2p is not None,
    }


def dump(
    entries: list[dict[str, Any]],
    version: str = "2.10",
    config: dict[str, tuple[str, list[int]]] | None = None,
    status: dict[str, tuple[int, int, int]] | None = None,
) -> Any:
    """A dump as a version writes it; ``""``: as torch 2.2 does, a list.

    Args:
        config: name -> (description, members) of the groups.
        status: number -> (last enqueued, started, completed).
    """
    config = config or {}
    number = tuple(int(part) for part in version.split(".")) if version else (0, 0)
    if number >= (2, 0):
        shown = {name: {"name": name, "desc": desc, "ranks": str(ranks)} for name, (desc, ranks) in config.items()}
        held: dict[str, Any] = {"version": version, "pg_config": shown}
        if number >= (2, 4):
            names = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
            held["pg_status"] = {key: dict(zip(names, last, strict=True)) for key, last in (status or {}).items()}
        dropped = {(2, 0): ("input_dtypes", "output_dtypes", "timeout_ms", "thread_id", "thread_name")}.get(number, ())
        held["entries"] = [{key: value for key, value in one.items() if key not in dropped} for one in entries]
        return held
    old = [_old(one, number) for one in entries]
    if not version:
        return old
    held = {"entries": old, "version": version}
    if number >= (1, 2):
        held["pg_config"] = {int(name): ranks for name, (_, ranks) in config.items()}
    return held


def _old(entry: dict[str, Any], version: tuple[int, ...]) -> dict[str, Any]:
    names = ("pg_id", "profiling_name", "input_sizes", "output_sizes", "state", "retired", "frames")
    old = {name: entry[name] for name in names}
    old["seq_id"] = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
    if version >= (1, 3):
        old["record_id"], old["op_id"] = entry["record_id"], entry["op_id"]
    if version >= (1, 1):
        for name in ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"):
            old[name] = entry[name]
    else:
        old["time_created_us"] = entry["time_created_ns"] // 1000
    return old


def as_json(held: Any) -> bytes:
    """A dump as torch's JSON: no stacks, 0 for a time that is not known, numbers of groups as text."""

    def plain(entry: dict[str, Any]) -> dict[str, Any]:
        times = ("time_discovered_started_ns", "time_discovered_completed_ns")
        return {key: 0 if key in times and value is None else value for key, value in entry.items() if key != "frames"}

    status = {key: {name: str(n) for name, n in last.items()} for key, last in held.get("pg_status", {}).items()}
    shown = {**held, "pg_status": status, "entries": [plain(one) for one in held["entries"]]}
    return json.dumps(dict(sorted(shown.items()))).encode()


def write(
    folder: Path, dumps: dict[int, Any], *, protocol: int | str = 2, name: str = "nccl_trace_rank_{}"
) -> list[str]:
    """Write dumps of ranks to files. ``protocol``: of the pickles, or ``"json"``."""
    paths: list[str] = []
    for rank, held in dumps.items():
        path = folder / name.format(rank)
        path.write_bytes(as_json(held) if protocol == "json" else pickle.dumps(held, int(protocol)))
        paths.append(str(path))
    return paths


def facts(paths: list[str] | str | Path) -> list[Fact]:
    given = [str(path) for path in paths] if isinstance(paths, list) else [str(paths)]
    return [fact for found in flight_recorder.read(files.find(given)) for fact in found.facts]


def calls(paths: list[str] | str | Path) -> dict[int, tuple[Call, ...]]:
    return {fact.speaker.rank: fact.calls for fact in facts(paths) if isinstance(fact, Calls)}


def notes(paths: list[str] | str | Path) -> list[str]:
    return [fact.text for fact in facts(paths) if isinstance(fact, Unknown)]
