"""Recordings from the folders that ``ddpnb run --record`` writes, of jobs that run, that are over, or on other hosts."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.ranks.jobs.command import refusals
from ddpnb.ranks.observe.recorded_host import RecordedHost, RecordedRank, host_in
from ddpnb.recording import phrases
from ddpnb.recording.ending import UNKNOWN_SIGNAL, Ending
from ddpnb.recording.facts.patience import PATIENCE
from ddpnb.recording.names import given_name
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.recording.report import Report, Source

FORMAT = "records of ddpnb run --record"
_WATCH_S, _LOOK_S = 1.0, 0.2
# Between the last signs of life of two ranks, after which one of them ended before the other. A file system that hosts
# share shows what was written to a mapped file up to a minute later.
_EARLIER_S, _EARLIER_ELSEWHERE_S = 10.0, 90.0
_IDENTITY = re.compile(r"rank\d{1,6}\.json")
_TOGETHER_NS = 300 * 10**9  # within which the hosts of a job come to its start
_ENTRIES = 1 << 16  # of one folder
_MOST_RANKS = 1 << 16
_DEPTH = 2  # the folder of the job, of a host, of a process group
_NAMED, _LONGEST = 4, 1000


def is_records(path: str | os.PathLike[str]) -> bool:
    """Whether this is a folder with records of ranks: of a job, of one of its hosts, or of a process group on it."""
    return bool(_starts([path]))


def read(paths: Sequence[str | os.PathLike[str]], patience: float = PATIENCE) -> Recording:
    """Read the records of one job.

    Where ranks live on this host, they are asked for their stacks, and watched for up to ``patience`` seconds while they
    make no progress. If the job has started several process groups, one after the other, it is the last that did not end
    well.

    Args:
        paths: folders of the job, of its hosts, or of a process group.
        patience: seconds without progress after which ranks count as blocked.

    Returns:
        One Recording of the ranks of all hosts, in the time of one clock.

    Raises:
        UsageError: there are no records, or they do not belong together.
    """
    folders = _starts(paths)
    groups: dict[str, list[RecordedHost]] = defaultdict(list)
    for host in filter(None, map(host_in, folders)):
        groups[host.start].append(host)
    if not groups:
        raise UsageError(
            "there are no records of ranks in this folder.",
            "ddpnb run --record -- COMMAND writes them; a rank is recorded from the start of its process group on.",
        )
    starts = _joined(groups.values())
    chosen = next((hosts for hosts in reversed(starts) if not _ended_well(hosts)), starts[-1])
    told = _others(starts, chosen) + _refused(folders)
    _watch(chosen, patience)
    return _recording(chosen, patience, told)


def _starts(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The folders of process groups in these folders."""
    found: list[str] = []
    level = [os.fspath(path) for path in paths]
    for _ in range(_DEPTH + 1):
        below: list[str] = []
        for folder in level:
            try:
                with os.scandir(folder) as entries:
                    listed = list(islice(entries, _ENTRIES))
            except (OSError, ValueError):
                continue
            names = {entry.name for entry in listed}
            if any(_IDENTITY.fullmatch(name) and f"{name[:-5]}.box" in names for name in names):
                found += [folder] if all(map(_is_plain, listed)) else []
            else:
                below += [entry.path for entry in listed if entry.is_dir(follow_symlinks=False)]
        level = sorted(below)
    return list(dict.fromkeys(map(os.path.abspath, found)))


def _joined(groups: Iterable[list[RecordedHost]]) -> list[list[RecordedHost]]:
    """The starts of process groups, in order: those whose hosts give the store different addresses are one.

    On the host of the store it may be ``localhost``.
    """
    starts: list[list[RecordedHost]] = []
    for hosts in sorted(groups, key=_began):
        before = next((others for others in reversed(starts) if _belong_together(others, hosts)), None)
        if before is not None:
            before += hosts
        else:
            starts.append(hosts)
    return sorted(starts, key=_began)


def _began(hosts: Sequence[RecordedHost]) -> int:
    return max(host.began_ns for host in hosts)


def _belong_together(one: Sequence[RecordedHost], other: Sequence[RecordedHost]) -> bool:
    names, ranks = {host.name for host in one}, {rank for host in one for rank in host.numbers}
    return (
        names.isdisjoint(host.name for host in other)
        and all(ranks.isdisjoint(host.numbers) for host in other)
        and _size(one) == _size(other)
        and abs(_began(one) - _began(other)) < _TOGETHER_NS
    )


def _is_plain(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file of its own, or a socket: to open a pipe that somebody has put there would never end."""
    try:
        mode = entry.stat(follow_symlinks=False).st_mode
    except OSError:  # it has just been replaced
        return True
    return stat.S_ISREG(mode) or stat.S_ISSOCK(mode) or stat.S_ISDIR(mode)


def _ended_well(hosts: Sequence[RecordedHost]) -> bool:
    endings = [ending for host in hosts for ending in host.endings]
    return len(endings) >= _size(hosts) and all(ending is not None and ending.well for ending in endings)


def _size(hosts: Sequence[RecordedHost]) -> int:
    return min(max(host.size for host in hosts), _MOST_RANKS)


def _others(starts: Sequence[list[RecordedHost]], chosen: list[RecordedHost]) -> list[str]:
    if len(starts) == 1:
        return []
    which = "did not end well" if not _ended_well(chosen) else "was started"
    others = [hosts[0].folder for hosts in starts if hosts is not chosen]
    named = ", ".join(map(given_name, others[-_NAMED:]))
    return [
        f"The job has started {len(starts)} process groups: this is the last that {which}. To see another, give its folder: {named}."
    ]


def _refused(folders: Sequence[str]) -> list[str]:
    """Processes in which the recorder could not start."""
    hosts = dict.fromkeys(map(os.path.dirname, folders))
    return [
        f"Process {one.pid} is not recorded: {given_name(one.why[:_LONGEST])}."
        for host in hosts
        for one in refusals(host)[:_NAMED]
    ]


def _watch(hosts: Sequence[RecordedHost], patience: float) -> None:
    """Look at the ranks that live here until all have made progress, or some have made none for ``patience`` seconds."""
    before = {host.folder: host.progress for host in hosts}
    began = time.monotonic()
    while (living := [host for host in hosts if host.alive]) and time.monotonic() - began < patience + _WATCH_S:
        for host in living:
            host.observer.look()
        still = [rank for host in living for rank in host.alive if host.progress[rank] == before[host.folder][rank]]
        if not still and time.monotonic() - began > _WATCH_S:
            return
        time.sleep(_LOOK_S)


def _recording(hosts: Sequence[RecordedHost], patience: float, told: list[str]) -> Recording:
    size = _size(hosts)
    reference = next((host for host in hosts if host.here), hosts[0])
    records: dict[int, RankRecord] = {rank: RankRecord(rank) for rank in range(size)}
    ranks: dict[int, RecordedRank] = {}
    sources: dict[str, str] = {}
    edited: tuple[str, ...] = ()
    facts: Mapping[str, Any] = {}
    for host in hosts:
        recording = host.observer.record()
        here = host.ranks(host.shift_to(reference))
        sources |= recording.sources
        edited = recording.edited if host.here else edited  # clocks of other hosts are not those of these files
        facts = recording.host if host.alive else facts
        for rank in sorted(recording.ranks.keys() & records.keys()):
            ranks[rank] = here[rank]
            records[rank] = here[rank].completed(recording.ranks[rank])
    living = any(known.alive for known in ranks.values())
    taken_ns = time.monotonic_ns() if living else max((known.alive_ns for known in ranks.values()), default=0)
    silent = {rank: known for rank, known in ranks.items() if known.silent(records[rank])}
    waited = [known.quiet_s for rank, known in silent.items() if _blocked(records[rank])]
    if silent:
        hung = not living and max(waited, default=0.0) >= patience
        told = [*told, *_of_silent(records, silent, patience, hung=hung)]
    if missing := [rank for rank in records if rank not in ranks]:
        was, have = (phrases.verb(missing, *words) for words in (("it was", "they were"), ("has", "have")))
        told = [
            *told,
            f"{phrases.ranks(missing, True)} of {size} {have} left no records: {was} not started or not recorded, or the "
            "folder of another host is not here.",
        ]
    if not (told or silent):
        return Recording(size, records, sources, taken_ns, facts, edited=edited)
    read_from = tuple(Source(host.folder, FORMAT, len(host.endings)) for host in hosts)
    report = Report(read_from, max(waited, default=0.0), unknown=tuple(told))
    return Recording(size, records, sources, taken_ns, facts, report=report, edited=edited)


def _of_silent(
    records: dict[int, RankRecord], silent: Mapping[int, RecordedRank], patience: float, *, hung: bool
) -> list[str]:
    """Show ranks that left no word of their end as they were at their last sign of life; returns what is not known.

    If ranks had been blocked by then (``hung``), somebody has ended the whole job because of it: what ended it is not the
    cause. One whose last sign of life is older than those of the others had ended before them.
    """
    last_ns = max(known.alive_ns for known in silent.values())
    failed_ns = max((one.ending.at_ns for one in records.values() if one.ending is not None), default=0)
    told: list[str] = []
    for rank, known in silent.items():
        early_s = (last_ns - known.alive_ns) * 1e-9
        early = early_s > (_EARLIER_S if known.who.here else _EARLIER_ELSEWHERE_S)
        if early:
            told.append(
                f"Rank {rank} gave its last sign of life {early_s:.0f} s before others: it was killed, its host was lost, or "
                "native code kept Python's lock from then on."
            )
        if early or (known.dead and not hung):
            at_ns = known.alive_ns if early else max(known.alive_ns, failed_ns)
            records[rank] = replace(records[rank], stacks=(), ending=Ending("died", UNKNOWN_SIGNAL, at_ns=at_ns))
        else:
            records[rank] = replace(records[rank], process=_activity(known, patience))
    over = [rank for rank, known in silent.items() if known.dead and records[rank].ending is None]
    if over:
        quiet_s = max(silent[rank].quiet_s for rank in over)
        told.append(
            f"{phrases.ranks(over, True)} {phrases.verb(over, 'was', 'were')} killed, by whom is not recorded, after ranks had "
            f"been blocked for {quiet_s:.0f} s: this is how they were then."
        )
    elsewhere = [rank for rank, known in silent.items() if not known.dead]
    if elsewhere:
        its, live = (phrases.verb(elsewhere, *words) for words in (("its", "their"), ("it lives", "they live")))
        told.append(
            f"{phrases.ranks(elsewhere, True)} ran on another host: {its} files say what happened until the last sign of "
            f"life, not whether {live}."
        )
    return told


def _blocked(record: RankRecord) -> bool:
    """Whether it waits in a call, or in the start-up."""
    return bool(record.in_flight) or any(event.state == "open" for event in record.history[-4:])


def _activity(known: RecordedRank, patience: float) -> Process:
    """What a process did at its last sign of life, as far as is known."""
    if known.quiet_s < patience:
        return Process("computing")
    if not known.idle:
        return Process("unknown", still_s=known.quiet_s)
    return Process("idle", known.quiet_s, known.wakes_in_s, known.waits_on, still_s=known.quiet_s)
