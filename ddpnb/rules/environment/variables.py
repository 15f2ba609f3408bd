"""Environment variables that are renamed, contradictory or dangerous."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ddpnb.recording import phrases
from ddpnb.recording.events.startup import Environment
from ddpnb.recording.facts.init_facts import inits
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.recording.findings import FindingType, Hint
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.rules.rule import Draft, family

DEPRECATED_VARIABLE = FindingType("DDP703", "deprecated-variable", severity="warning")


def environment(record: RankRecord) -> dict[str, str]:
    """The environment of a rank, as it was when it joined the others."""
    found = record.events(Environment)
    return dict(found[-1].variables) if found else {}


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


@family(DEPRECATED_VARIABLE)
def variables(snap: Snapshot) -> Iterable[Draft]:
    """Variables that are renamed, contradictory or dangerous; one finding for each."""
    told: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for rank, record in snap.ranks.items():
        table = environment(record)
        for name, value in table.items():
            if problem := says(name, value, table):
                told[f"{name}={value}", *problem].append(rank)
    starts = PerRank(inits(snap.recording))
    for (variable, text, remedy), ranks in told.items():
        yield Draft(
            f"{variable} {text}.",
            ranks,
            remedy,
            starts.among(ranks),
            evidence=(f"It is set on {phrases.ranks(ranks)}.",),
            hint=_assigned(snap.recording, variable.partition("=")[0]),
        )


def says(name: str, value: str, table: Mapping[str, str]) -> tuple[str, str] | None:
    """What is wrong with a variable among those of a process, from the verb on, and what to do; None: nothing."""
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
