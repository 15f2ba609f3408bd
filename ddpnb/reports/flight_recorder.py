"""Dumps of PyTorch's flight recorder (``TORCH_FR_BUFFER_SIZE``, ``TORCH_NCCL_TRACE_BUFFER_SIZE``): pickles and JSON.

Pickles are read by processes with limits that build plain values alone (``dumps.processes``). All dumps of a job are read
together: a group's members may be known from the dump of another rank.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.recording.calls import Call, CallState
from ddpnb.recording.names import given_name
from ddpnb.recording.stacks import Stack
from ddpnb.reports import groups
from ddpnb.reports.dumps import file_names, messages, processes, tables, timeouts, windows
from ddpnb.reports.dumps.tables import Dump, Ints
from ddpnb.reports.facts import Calls, Fact, Found, GroupName, Members, Progress, Speaker, Unknown, WorldSize
from ddpnb.reports.files import ReportFile

FORMAT = "flight-recorder dump"
_PICKLE = re.compile(rb"\x80[\x01-\x05]|\(dp?\d|\(lp?\d|[}\]](?:q\x00)?\(|[}\]]\.")
_JSON = re.compile(
    rb'\s{0,64}[{\[].{0,60000}"(?:profiling_name|pg_config|pg_status|comm_lib_version|nccl_comm_state|nccl_version'
    rb'|collective_seq_id|record_id|time_created_ns)"\s{0,64}:',
    re.DOTALL,
)
_HINT = "Name the files by rank, as torch does: nccl_trace_rank_0, nccl_trace_rank_1, ..."


def recognises(head: bytes) -> bool:
    """Whether a file is a dump, by its first bytes: any pickle, or JSON with the fields of a dump.

    Example:
        >>> recognises(b'{"comm_lib_version":"","entries":[]}')
        True
    """
    return bool(_PICKLE.match(head)) or bool(_JSON.match(head.removeprefix(b"\xef\xbb\xbf")))


def read(files: Sequence[ReportFile], progress: Callable[[int, int], None] = lambda _ready, _all: None) -> list[Found]:
    """Read the dumps of one job.

    Args:
        files: the dumps, of any rank.
        progress: called with the number of files that are read, and of all.

    Returns:
        The facts of each file: the calls of its rank, and how far it is in each group.

    Raises:
        UsageError: a file names anything that could be executed, none can be read, or ranks are not known.

    Example:
        >>> flight_recorder.read(files.find(["dumps/"]))
    """
    notes: dict[int, list[str]] = defaultdict(list)
    dumps = _one_of_each_rank(files, _ranks(files, _load(files, progress, notes)), notes)
    config = {dump.rank: _names(dump) for dump in dumps}
    known = groups.DumpedGroups(config)
    for dump in dumps:
        dump.groups = [known.of(dump.rank, name) for name, _, _ in dump.table.groups]
    ended = timeouts.reopen(dumps)
    forgotten = {dump.rank: _forgotten(dump) for dump in dumps}
    turns = messages.turns(dumps, forgotten)
    facts: dict[int, list[Fact]] = defaultdict(list)
    for dump, places in zip(dumps, windows.kept(dumps), strict=True):
        calls = _calls(dump, places, turns.get(dump.rank, {}))
        before = forgotten[dump.rank] + (int(places[0]) if len(places) else 0)
        facts[dump.place] += [Calls(Speaker(dump.rank), calls, before, _stack(dump, calls)), *_progress(dump, known)]
    if dumps:
        first = min(dump.place for dump in dumps)
        facts[first] += [*([WorldSize(known.size)] if known.size_known else []), *map(Unknown, (*known.notes, *ended))]
        facts[first] += _members(config)
    for place, texts in notes.items():
        facts[place] += map(Unknown, texts)
    return [Found(file.path, FORMAT, tuple(facts[place])) for place, file in enumerate(files) if place in facts]


def _load(files: Sequence[ReportFile], progress: Callable[[int, int], None], notes: dict[int, list[str]]) -> list[Dump]:
    """Read the files. A damaged one among others is only noted: a rank may have died while it wrote.

    Raises:
        UsageError: a file names anything that could be executed, or none can be read.
    """
    sources = [file.path if file.plain else partial(file.whole, processes.LARGEST_FILE) for file in files]
    known: dict[bytes, tables.Table] = {}
    dumps: list[Dump] = []
    refused: dict[int, str] = {}
    for ready, (place, reading) in enumerate(processes.read_files(sources), 1):
        progress(ready, len(files))
        path = given_name(files[place].path)
        if reading.unsafe:
            raise UsageError(
                f"{path} {reading.refused}.", "It is no dump of PyTorch's flight recorder: ask who made it."
            )
        if reading.refused:
            refused[place] = f"{path} {reading.refused}."
            continue
        table = known.get(reading.table)
        if table is None:
            table = known[reading.table] = tables.read(reading.table)
        dumps.append(Dump(place, table, tables.columns(reading.columns), json.loads(reading.facts)))
    if refused and not dumps:
        more = f" Nor could {len(refused) - 1} other files be read." if refused.keys() - {min(refused)} else ""
        raise UsageError(
            refused[min(refused)] + more, "Copy the dumps again, after the job has written them to their end."
        )
    for place, text in refused.items():
        notes[place].append(f"{text} The calls of its rank are not known.")
    for dump in dumps:
        if left_out := dump.facts["left_out"]:
            text = f"{given_name(files[dump.place].path)} has {left_out} entries that were not read: they are damaged, or very many."
            notes[dump.place].append(text)
    return sorted(dumps, key=lambda dump: dump.place)


def _ranks(files: Sequence[ReportFile], dumps: list[Dump]) -> list[Dump]:
    """Which rank wrote each dump: as the name of its file says, else its content."""
    named = file_names.ranks([file.path for file in files])
    for dump in dumps:
        rank, sure = named[dump.place]
        inside = dump.facts["rank"]
        dump.rank = rank if sure or inside < 0 else inside
        if dump.rank < 0:
            dump.rank = _speaker(dump)
        if not 0 <= dump.rank < groups.MOST_RANKS:
            raise UsageError(f"The rank of {given_name(files[dump.place].path)} is not known.", _HINT)
    return dumps


def _speaker(dump: Dump) -> int:
    """The rank that sends what a dump calls "send 0->1"; -1: none."""
    config = _names(dump).config
    found: set[int] = set()
    for row in dump.table.rows:
        name, label, _ = dump.table.groups[row.group]
        ranks = config.get(name, ("", ()))[1] or (range(row.own + 1) if groups.is_default(name, label) else ())
        if 0 <= row.own < len(ranks):
            found.add(ranks[row.own])
    return found.pop() if len(found) == 1 else -1


def _one_of_each_rank(files: Sequence[ReportFile], dumps: list[Dump], notes: dict[int, list[str]]) -> list[Dump]:
    newest = {dump.rank: dump for dump in sorted(dumps, key=_newest)}
    for rank, count in Counter(dump.rank for dump in dumps).items():
        if count > 1:
            place = newest[rank].place
            path = given_name(files[place].path)
            notes[place].append(f"There are {count} dumps of rank {rank}: taken is the newest, {path}.")
    return [newest[rank] for rank in sorted(newest)]


def _names(dump: Dump) -> groups.Names:
    return groups.names(dump.facts["pg_config"], dump.table.groups, dump.facts["version"])


def _newest(dump: Dump) -> tuple[int, ...]:
    """What a later dump of the same rank has more of."""
    return tuple(
        int(own.max()) if len(own) else -1 for own in (dump.columns.created, dump.columns.done, dump.columns.number)
    )


def _forgotten(dump: Dump) -> int:
    """How many entries the recorder has made that are not in the dump."""
    numbers = dump.columns.number.tolist()
    made = numbers[-1] + 1 if dump.facts["records"] and numbers else 0
    if numbers and numbers[0] == 1:
        made -= 1  # it counts from 1; if it did not, the numbers of the calls show what is missing
    return max(0, made - len(numbers), dump.facts["left_out"])


_STATES = {int(state): state for state in CallState}


def _calls(dump: Dump, places: Ints, turns: Mapping[int, int]) -> tuple[Call, ...]:
    threads = [int(name) if name.isdecimal() else 0 for name in dump.facts["threads"]]
    rows: list[tuple[Any, ...]] = []
    for row in dump.table.rows:
        group = dump.groups[row.group]
        peer = group.ranks[row.peer] if 0 <= row.peer < len(group.ranks) else -1
        rows.append((group, row.signature, row.site, peer, row.message))
    made: list[Call] = []
    entries = zip(places.tolist(), *(column[places].tolist() for column in dump.columns), strict=True)
    for place, call, seq, number, created, done, thread, state in entries:
        group, signature, site, peer, message = rows[call]
        made.append(
            Call(
                number, group, 0 if message else max(seq, 0), signature, site, _STATES[state],
                threads[thread] if thread < len(threads) else 0, peer, entered_ns=created, issued_ns=created,
                done_ns=done, turn=turns.get(place, 0),
            )
        )  # fmt: skip
    return tuple(made)


def _stack(dump: Dump, calls: Sequence[Call]) -> Stack | None:
    """The stack of the call that a rank waits in."""
    places = (dump.columns.state == CallState.WAITING).nonzero()[0]
    waiting = next((call for call in reversed(calls) if call.state is CallState.WAITING), None)
    if not len(places) or waiting is None:
        return None
    frames = dump.table.rows[dump.columns.calls[places[-1]]].frames
    return Stack("MainThread", frames, waiting.thread, main=True) if frames else None


def _progress(dump: Dump, known: groups.DumpedGroups) -> list[Fact]:
    """How far the rank is. Sends and receives count as collectives there, so that groups with any say nothing."""
    named = {number: name for name, _, number in dump.table.groups}
    mixed = {dump.table.groups[row.group][0] for row in dump.table.rows if row.message}
    config = {name: label for name, label, _ in dump.facts["pg_config"]}
    found: list[Fact] = []
    for number, *last in dump.facts["pg_status"]:
        name = named.get(number, number if number in config else None)
        if name is not None and name not in mixed and known.named(name) <= 1:
            label = given_name(config.get(name, ""))
            found.append(Progress(Speaker(dump.rank), GroupName(name, label), *last))
    return found


def _members(config: Mapping[int, groups.Names]) -> list[Fact]:
    """The groups of which dumps name the members."""
    found: dict[str, Fact] = {}
    for own in config.values():
        for name, (label, ranks) in own.config.items():
            if ranks and name not in found and not groups.is_default(name, label):
                found[name] = Members(GroupName(name, label, -1, ranks))
    return list(found.values())
