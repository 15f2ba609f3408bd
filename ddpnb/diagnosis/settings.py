"""Findings from the settings of the ranks: environment, versions, backends, time-outs, threads. No hang needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ddpnb.diagnosis.divergence.digests import Split, split
from ddpnb.diagnosis.hangs.init_facts import as_int
from ddpnb.diagnosis.once import once
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.events import Event
from ddpnb.model.events.data import LoaderSeen
from ddpnb.model.events.startup import Environment, InitProcessGroup, NewGroup, ThreadsSet
from ddpnb.model.findings import Finding, FindingType, Hint, Severity
from ddpnb.model.recording import RankRecord, Recording

BACKEND_MISMATCH = FindingType("DDP106", "backend-mismatch", group_mismatch=True)
VERSION_MISMATCH = FindingType("DDP107", "version-mismatch")
TIMEOUT_SETTING = FindingType("DDP317", "timeout-setting", severity="note")
SHARED_MEMORY_LOW = FindingType("DDP506", "shared-memory-low", severity="warning")
DEPRECATED_VARIABLE = FindingType("DDP703", "deprecated-variable", severity="warning")
CPU_OVERSUBSCRIBED = FindingType("DDP704", "cpu-oversubscribed", severity="warning")

DEFAULT_TIMEOUT_S = 1800.0
_LONG_S = 4 * 3600.0


@once
def find(recording: Recording, stuck: frozenset[int] = frozenset()) -> list[Finding]:
    """The findings about settings; warnings and notes unless the ranks contradict each other."""
    found = [
        _backends(recording),
        _versions(recording),
        _timeouts(recording, stuck),
        _threads(recording),
        _shared_memory(recording),
    ]
    return [finding for finding in [*found, *_variables(recording)] if finding is not None]


@once
def inits(recording: Recording) -> dict[int, InitProcessGroup]:
    """The last init_process_group of each rank."""
    return {rank: starts[-1] for rank, record in recording.ranks.items() if (starts := record.events(InitProcessGroup))}


def environment(record: RankRecord) -> dict[str, str]:
    """The environment of a rank, as it was when it joined the others."""
    found = record.events(Environment)
    return dict(found[-1].variables) if found else {}


def _where(events: Mapping[int, Event], order: tuple[int, ...]) -> tuple[tuple[int, Site], ...]:
    return tuple((rank, events[rank].site) for rank in order if rank in events and events[rank].site != NO_SITE)


def _backends(recording: Recording) -> Finding | None:
    """DDP106: the ranks request different backends."""
    events: Mapping[int, InitProcessGroup | NewGroup] = inits(recording)
    asked = {r: (e.backend if e.asked is None else e.asked).lower() for r, e in inits(recording).items()}
    apart = split(asked)
    if not apart.differs:
        events, asked = _of_groups(recording)
        apart = split(asked)
    if not apart.differs:
        return None
    odd, others = _apart(apart)
    sides = apart.sides if apart.tied else ()
    if sides or len(apart.sides) > 2:
        told = phrases.by_side(apart.sides, lambda rank: repr(asked[rank]) if asked[rank] else "the default")
        summary = f"The ranks request different backends: {told}."
    else:
        summary = (
            f"{phrases.ranks(odd, True)} {phrases.verb(odd, 'requests', 'request')} the backend {asked[odd[0]] or 'by default'!r}, "
            f"{phrases.ranks(others)} {asked[others[0]] or 'the default'!r}."
        )
    return Finding(
        BACKEND_MISMATCH,
        summary,
        apart.culprits,
        () if sides else others,
        None,
        _where(events, (*odd, *others)),
        (
            *(f"Rank {rank}: backend {name or '(default)'}." for rank, name in sorted(asked.items())[:8]),
            *phrases.undecided(sides),
        ),
        "Request the same backend on all ranks.",
        sides=sides,
    )


def _apart(found: Split) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the ranks of the smaller sides, those of the first): the order in which a sentence names them."""
    return tuple(sorted(rank for side in found.sides[1:] for rank in side)), found.sides[0]


def _of_groups(recording: Recording) -> tuple[dict[int, NewGroup], dict[int, str]]:
    """The first new_group for which the ranks request different backends: its events, and those backends."""
    if not recording.has_all_events:  # which of them is whose first is not known
        return {}, {}
    made = {rank: record.events(NewGroup) for rank, record in recording.ranks.items()}
    for turn in range(max(map(len, made.values()), default=0)):
        groups = {rank: found[turn] for rank, found in made.items() if len(found) > turn}
        asked = {rank: group.backend.lower() for rank, group in groups.items()}
        if len(set(asked.values())) > 1 and len({group.ranks for group in groups.values()}) == 1:
            return groups, asked
    return {}, {}


def _versions(recording: Recording) -> Finding | None:
    """DDP107: torch, CUDA, NCCL or Python differ between ranks."""
    starts = inits(recording)
    for name in ("torch", "cuda", "nccl", "python"):
        told = {rank: start.versions[name] for rank, start in starts.items() if start.versions.get(name)}
        apart = split(told)
        if apart.differs:
            odd, others = _apart(apart)
            sides = apart.sides if apart.tied else ()
            if sides or len(apart.sides) > 2:
                summary = (
                    f"The ranks run different versions of {name}: {phrases.by_side(apart.sides, told.__getitem__)}."
                )
            else:
                summary = (
                    f"{phrases.ranks(odd, True)} {phrases.verb(odd, 'runs', 'run')} {name} {told[odd[0]]}, "
                    f"{phrases.ranks(others)} {told[others[0]]}."
                )
            return Finding(
                VERSION_MISMATCH,
                summary,
                apart.culprits,
                () if sides else others,
                None,
                _where(starts, (*odd, *others)),
                (
                    *(f"Rank {rank}: {name} {version}." for rank, version in sorted(told.items())[:8]),
                    *phrases.undecided(sides),
                ),
                "Install the same versions for all ranks (one environment or image for the whole job).",
                sides=sides,
            )
    return None


def _timeouts(recording: Recording, stuck: frozenset[int]) -> Finding | None:
    """DDP317: a sub-group without the time-out of the default group, or a time-out of many hours."""
    starts = inits(recording)
    for rank, start in sorted(starts.items()):
        own = start.timeout_s
        if own is not None and own >= _LONG_S:
            ranks = tuple(r for r, s in sorted(starts.items()) if s.timeout_s == own)
            return _timeout(
                f"The time-out of the process group is {_hours(own)}: hangs take that long to be detected.",
                ranks,
                starts,
                stuck,
                severity="warning",
            )
        if own is None or own >= DEFAULT_TIMEOUT_S:
            continue
        groups = {r: [g for g in rec.events(NewGroup) if g.timeout_s is None] for r, rec in recording.ranks.items()}
        if groups[rank]:
            places = {r: found[-1] for r, found in groups.items() if found}
            return _timeout(
                f"new_group() does not inherit the default group's time-out of {own:.0f} s: the sub-group has the "
                f"default of {DEFAULT_TIMEOUT_S / 60:.0f} minutes.",
                tuple(sorted(places)),
                places,
                stuck,
            )
    return None


def _timeout(
    summary: str,
    ranks: tuple[int, ...],
    places: Mapping[int, Event],
    stuck: frozenset[int] = frozenset(),
    severity: Severity | None = None,
) -> Finding:
    return Finding(
        TIMEOUT_SETTING,
        summary,
        ranks,
        (),
        None,
        _where(places, ranks),
        (),
        "Pass timeout=timedelta(...) when creating the group: a little more than its longest legitimate wait.",
        severity=severity or ("warning" if stuck else "note"),
    )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.0f} hours" if seconds >= 7200 else f"{seconds / 60:.0f} minutes"


def _threads(recording: Recording) -> Finding | None:
    """DDP704: many more threads than cores."""
    cores = as_int(recording.host.get("cores")) or 0
    counts = {}
    for rank, record in recording.ranks.items():
        told = record.events(InitProcessGroup, ThreadsSet)
        counts[rank] = next((event.threads for event in reversed(told) if event.threads), 0)
    total = sum(counts.values())
    many = tuple(
        rank for rank, count in sorted(counts.items()) if count > 1 and count * len(counts) >= 4 * max(cores, 1)
    )
    if not cores or not many or total < 4 * cores:
        return None
    places = {rank: _set_threads(recording.ranks[rank]) for rank in many}
    return Finding(
        CPU_OVERSUBSCRIBED,
        f"The ranks use {total} compute threads on {cores} cores.",
        many,
        (),
        None,
        _where({rank: event for rank, event in places.items() if event is not None}, many),
        tuple(f"Rank {rank}: {counts[rank]} threads." for rank in many[:8]),
        f"Set OMP_NUM_THREADS (or torch.set_num_threads) to the cores per rank: {max(1, cores // max(1, len(counts)))} here.",
    )


def _set_threads(record: RankRecord) -> Event | None:
    """Where the number was set, or else where it was recorded."""
    told = (*record.events(InitProcessGroup), *record.events(ThreadsSet))
    return next((event for event in reversed(told) if event.site != NO_SITE), None)


def _shared_memory(recording: Recording) -> Finding | None:
    """DDP506: workers pass batches through shared memory that is nearly full, or tiny."""
    total, free = recording.host.get("shm_total"), recording.host.get("shm_free")
    if not isinstance(total, (int, float)) or not isinstance(free, (int, float)) or free > 64 << 20:
        return None
    loaders = {
        rank: [loader for loader in record.events(LoaderSeen) if loader.num_workers > 0]
        for rank, record in recording.ranks.items()
    }
    ranks = tuple(rank for rank, found in sorted(loaders.items()) if found)
    if not ranks:
        return None
    return Finding(
        SHARED_MEMORY_LOW,
        f"/dev/shm has {free / 2**20:.0f} MiB left of {total / 2**20:.0f} MiB: DataLoader workers pass their batches through it.",
        ranks,
        (),
        None,
        _where({rank: loaders[rank][-1] for rank in ranks}, ranks),
        (),
        "Give the container more shared memory (docker run --shm-size=8g, or --ipc=host), or use fewer workers and batches in flight.",
    )


# -- environment variables


@dataclass(frozen=True, slots=True)
class _Rule:
    says: str
    remedy: str
    values: tuple[str, ...] = ()  # for which values; empty: for any


_RENAMED = {
    name: f"TORCH_{name}"
    for name in (
        "NCCL_BLOCKING_WAIT", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING",
    )
}  # fmt: skip
_ON = ("1", "true", "True", "TRUE", "yes", "on")
_RULES = {
    "TORCH_NCCL_BLOCKING_WAIT": _Rule("makes every wait block the CPU, and disables the watchdog", "Unset it; use the time-out and the flight recorder.", _ON),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": _Rule("disables the handling of failed collectives: a dead rank leaves the others hanging", "Unset it (3 is the default).", ("0",)),
    "CUDA_LAUNCH_BLOCKING": _Rule("makes every kernel launch synchronous: for debugging only", "Unset it for training.", _ON),
    "TORCH_DISTRIBUTED_DEBUG": _Rule("checks every collective with an extra one: 2.5 to 13 times slower, and a crash with DDP on gloo in torch 2.13", "Use INFO, or none, for training.", ("DETAIL",)),
    "NCCL_P2P_DISABLE": _Rule("disables direct transfers between GPUs", "Unset it unless the hardware is known to be broken.", _ON),
    "NCCL_SHM_DISABLE": _Rule("disables transfers through shared memory", "Unset it unless shared memory is known to be broken.", _ON),
    "NCCL_IB_DISABLE": _Rule("disables InfiniBand", "Unset it where there is InfiniBand.", _ON),
    "NCCL_LAUNCH_MODE": _Rule("is for processes with several GPUs and may deadlock", "Unset it.", ("GROUP", "group")),
    "TORCH_NCCL_ENABLE_MONITORING": _Rule("disables the watchdog's monitor: a stuck watchdog is never detected", "Unset it.", ("0",)),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": _Rule("disables the caching allocator: very slow", "Unset it for training.", _ON),
    "PYTORCH_CUDA_ALLOC_CONF": _Rule("was renamed to PYTORCH_ALLOC_CONF in torch 2.9", "Rename it."),
}  # fmt: skip


def _variables(recording: Recording) -> list[Finding]:
    """DDP703: variables that are renamed, contradictory or dangerous; one finding for each."""
    told: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    tables = {rank: environment(record) for rank, record in recording.ranks.items()}
    for rank, table in sorted(tables.items()):
        for name, value in table.items():
            text = _says(name, value, table)
            if text:
                told[f"{name}={value}", *text].append(rank)
    starts = inits(recording)
    found = []
    for (variable, says, remedy), ranks in told.items():
        place = {rank: starts[rank] for rank in ranks if rank in starts}
        found.append(
            Finding(
                DEPRECATED_VARIABLE,
                f"{variable} {says}.",
                tuple(ranks),
                (),
                None,
                _where(place, tuple(ranks)),
                (f"It is set on {phrases.ranks(ranks)}.",),
                remedy,
                hint=_assigned(recording, variable.partition("=")[0]),
            )
        )
    return found


def _says(name: str, value: str, table: Mapping[str, str]) -> tuple[str, str] | None:
    if name in _RENAMED:
        new = _RENAMED[name]
        blocking = name == "NCCL_BLOCKING_WAIT" and value in _ON
        more = ", and as 1 it makes every wait block the CPU" if blocking else ""
        return f"is deprecated: it was renamed to {new}{more}", f"Unset it, or use {new} if you need it."
    rule = _RULES.get(name)
    if rule is None or (rule.values and value not in rule.values):
        return None
    if name == "TORCH_NCCL_BLOCKING_WAIT" and table.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0") not in ("0", ""):
        return (
            "contradicts TORCH_NCCL_ASYNC_ERROR_HANDLING: only one of the two can be in effect",
            "Unset one of the two.",
        )
    return rule.says, rule.remedy


def _assigned(recording: Recording, name: str) -> Hint | None:
    """The one line of the user's files that names this variable beside the environment."""
    places = [
        (path, number)
        for path, text in sorted(recording.sources.items())
        for number, line in enumerate(text.splitlines(), 1)
        if name in line and "environ" in line and not line.lstrip().startswith("#")
    ]
    return Hint(*places[0], f"this line may set {name}") if len(places) == 1 else None
