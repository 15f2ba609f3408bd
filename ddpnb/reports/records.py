"""Exports of log collectors, of which each record holds a line: JSON (one record in a line, or a document), CSV and TSV."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from ddpnb.recording.names import UNDECODABLE, one_line

_LARGEST = 64 << 20  # characters of a document that is parsed as a whole
_SAMPLE = 50  # lines
_TEXTS = ("log", "message", "msg", "line", "textpayload", "@message", "text", "content", "body", "_raw", "data")
_TIMES = ("timestamp", "@timestamp", "time", "ts", "date", "datetime", "__realtime_timestamp")
_RANKS = ("rank", "global_rank")
_HOSTS = ("pod", "pod_name", "_hostname", "hostname", "host", "instance", "logstreamname", "source")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ][\d:.+Z-]{5,30})?$|\d{10,19}(?:\.\d{1,9})?$")
_FRACTION = re.compile(r"\d{3}\b")  # of a second, behind a comma

_DEEPEST = 4

Record = Mapping[str, Any]


def lines_of(text: str) -> str:
    """The lines of an export, in the order of time, behind what their records say of rank and host; any other text as it is."""
    start = text[:1000].lstrip()[:1]
    records = _of_json(text) if start in ("{", "[") else _of_table(text)
    written = [one for one in map(_written, records) if one is not None]
    if not written:
        return text
    times = [time for _, time, _, _ in written]
    if len(times) > 1 and all(times) and times[0] > times[-1]:
        written.reverse()
    hosts = {host for *_, host in written}
    return "\n".join(
        _headed(line, rank, host if len(hosts) > 1 else "")
        for said, _, rank, host in written
        for line in said.split("\n")
    )


def _headed(line: str, rank: str, host: str) -> str:
    who = f"[pod/{host}/log] " if host else ""
    return f"{who}[rank{rank}]: {line}" if rank and not line.startswith("[rank") else who + line


def _written(record: Record) -> tuple[str, str, str, str] | None:
    """(text, time, rank, host) of a record; None where it holds no text."""
    said = next((text for name in _TEXTS if (text := _text(record.get(name))) is not None), None)
    if said is None:
        return None
    time, rank, host = (
        next((str(record[n]) for n in names if record.get(n) is not None), "") for names in (_TIMES, _RANKS, _HOSTS)
    )
    return said.rstrip("\r\n"), time, rank if rank.isdecimal() else "", re.sub(r"[^\w.-]", "-", one_line(host[:120]))


def _text(value: object) -> str | None:
    if isinstance(value, list):  # journald: the bytes of a line that is no UTF-8
        numbers = cast("list[object]", value)
        return bytes(one for one in numbers if isinstance(one, int) and 0 <= one < 256).decode("utf-8", "replace")
    return value if isinstance(value, str) else None


# -- JSON


def _of_json(text: str) -> list[Record]:
    lines = text.split("\n")
    sample = [line for line in islice((line.strip() for line in lines), 4 * _SAMPLE) if line][:_SAMPLE]
    if sum(line.startswith("{") and line.rstrip(",").endswith("}") for line in sample) * 2 > len(sample):
        return [record for line in lines for record in _of_line(line)]
    document = _decoded(text) if len(text) <= _LARGEST else None
    return [_flat(record) for record in _listed(document)]


def _of_line(line: str) -> Iterator[Record]:
    value = _decoded(line.strip().rstrip(",")) if line.lstrip()[:1] == "{" else None
    if isinstance(value, dict):
        yield _flat(cast("Record", value))
    elif line.strip() not in ("", "[", "]"):
        yield {"log": line}


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except UNDECODABLE:
        return None


def _listed(value: object, depth: int = 0) -> Sequence[Record]:
    """The records of a document: the first list of objects, or of pairs of a time and a line, in it."""
    if isinstance(value, list):
        some = cast("list[object]", value)
        if some and all(isinstance(one, dict) for one in some):
            records = cast("list[Record]", some)
            nested = [one for record in records for one in _listed(record.get("values"), depth + 1)]
            return nested or records
        pairs = [cast("list[object]", one) for one in some if isinstance(one, list)]
        return [{"time": pair[0], "log": pair[1]} for pair in pairs if len(pair) == 2]
    if isinstance(value, dict) and depth < _DEEPEST:
        inside = (_listed(one, depth + 1) for one in cast("Record", value).values())
        return next((records for records in inside if records), ())
    return ()


def _flat(record: Record, depth: int = 0) -> dict[str, Any]:
    """With the names of inner objects too, in small letters."""
    flat: dict[str, Any] = {str(name).lower(): value for name, value in record.items() if not isinstance(value, dict)}
    for value in record.values() if depth < _DEEPEST else ():
        if isinstance(value, dict):
            for name, inner in _flat(cast("Record", value), depth + 1).items():
                flat.setdefault(name, inner)
    return flat


# -- tables


def _of_table(text: str) -> Iterable[Record]:
    head = [line for line in text[:100_000].split("\n", _SAMPLE)[:_SAMPLE] if line]
    if len(head) < 2:
        return
    delimiter = max(",\t;", key=head[0].count)
    first = _cells(head[:1], delimiter)[0] if delimiter in head[0] else []
    names = [name.strip().lower().lstrip("\ufeff") for name in first]
    if any(name in _TEXTS for name in names) and len(names) > 1:
        for cells in islice(_cells(text.split("\n"), delimiter), 1, None):
            yield dict(zip(names, cells, strict=False))
        return
    rows = _cells(head, delimiter)
    width = len(first)
    if width < 2 or not all(len(row) == width and _TIME.match(row[0]) for row in rows):
        return
    if all(_FRACTION.match(row[1]) for row in rows):
        return  # a logger's time
    longest = max(range(1, width), key=lambda column: sum(len(row[column]) for row in rows))
    names = ["time", *("log" if column == longest else f"column {column}" for column in range(1, width))]
    for cells in _cells(text.split("\n"), delimiter):
        yield dict(zip(names, cells, strict=False))


def _cells(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader((f"{line}\n" for line in lines), delimiter=delimiter))
    except csv.Error:
        return [[]]
