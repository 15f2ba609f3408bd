"""The links between the GPUs of this machine, as NVML tells of them. Not yet run on GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

from ddpnb.recording.checks import Check

_WORDS = {"SYS": "across CPU sockets", "NODE": "across host bridges"}
_SHOWN = 8
Links = Mapping[str, Mapping[str, str]]  # see ``nvml.Driver``
Pair = tuple[str, str, str]  # two GPUs, and their link


def checks(links: Links) -> list[Check]:
    """The links in one line; a warning for the pairs that are slow (DDP207)."""
    pairs = [(one, other, links[one].get(other, "")) for one, other in combinations(links, 2)]
    kinds = Counter(link for *_, link in pairs)
    if not any(kinds):
        todo = "Look at it: nvidia-smi topo -m"
        return [Check("links", "unknown", "the driver tells of no links", section="GPUs", todo=todo)]
    linked = _linked(list(links), pairs)
    details = {"links": links, "linked": linked}
    told = ", ".join(f"{kind or 'unknown'} ({count} pair{'s' * (count > 1)})" for kind, count in kinds.items())
    slow = _slow(pairs)
    if not slow:
        return [Check("links", "ok", told, section="GPUs", details=details)]
    shown = ", ".join(f"{one}-{other} {link}" for one, other, link in slow[:_SHOWN])
    more = f" and {len(slow) - _SHOWN} more" if len(slow) > _SHOWN else ""
    ways = ", ".join(sorted({_WORDS[link] for *_, link in slow}))
    told = f"{shown}{more}: no NVLink, {ways}" + (f"; in all {told}" if len(kinds) > 1 else "")
    return [Check("links", "warning", told, "DDP207", "GPUs", _todo(linked), details)]


def _linked(gpus: Sequence[str], pairs: Sequence[Pair]) -> list[list[str]]:
    """The GPUs that NVLink connects, in groups."""
    groups: list[list[str]] = [[name] for name in gpus]
    for one, other, link in pairs:
        if link.startswith("NV"):
            first, second = (next(group for group in groups if name in group) for name in (one, other))
            if first is not second:
                groups.remove(second)
                first += second
    return groups


def _slow(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs across sockets; where others have NVLink, also those across host bridges."""
    nvlink = any(link.startswith("NV") for *_, link in pairs)
    slow = ("SYS", "NODE") if nvlink else ("SYS",)
    return [pair for pair in pairs if pair[2] in slow]


def _todo(linked: Sequence[Sequence[str]]) -> str:
    largest = max(linked, key=len)
    if len(largest) < 2:
        return "Where a job needs fewer GPUs than there are, choose some of one socket (nvidia-smi topo -m)."
    numbers = ",".join(str(number) for number in sorted(int(name[3:]) for name in largest))
    return f"Where {len(largest)} GPUs are enough, use CUDA_VISIBLE_DEVICES={numbers}, which NVLink connects."
