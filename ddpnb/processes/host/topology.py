"""The links between the GPUs of this machine, as ``nvidia-smi topo -m`` prints them. Not yet run on GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from ddpnb.model.checks import Check
from ddpnb.processes.host.answers import Answer

_STYLE = re.compile(r"\x1b\[[\d;]*m")
_LINK = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|OK|N/A|\?")
_NIC = re.compile(r"^\s*(NIC\d+)\s*:\s*(\S+)")
_WORDS = {"SYS": "across CPU sockets", "NODE": "across host bridges"}
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Topology:
    """``links``: device -> other device -> ``NV12``, ``PIX``, ``PXB``, ``PHB``, ``NODE`` or ``SYS``.

    ``affinity``: device -> ``CPU Affinity``, ``NUMA Affinity`` -> value; ``nics``: ``NIC0`` -> its name.
    """

    links: Mapping[str, Mapping[str, str]]
    affinity: Mapping[str, Mapping[str, str]]
    nics: Mapping[str, str]

    @property
    def gpus(self) -> list[str]:
        return [name for name in self.links if name.startswith("GPU")]

    def pairs(self) -> Iterator[tuple[str, str, str]]:
        """Each two GPUs, and their link."""
        for one, other in combinations(self.gpus, 2):
            yield one, other, self.links[one].get(other, "")

    def linked(self) -> list[list[str]]:
        """The GPUs that NVLink connects, in groups."""
        groups: list[list[str]] = [[name] for name in self.gpus]
        for one, other, link in self.pairs():
            if link.startswith("NV"):
                first, second = (next(group for group in groups if name in group) for name in (one, other))
                if first is not second:
                    groups.remove(second)
                    first += second
        return groups


def parse(text: str) -> Topology:
    """Read the matrix; empty if there is none."""
    lines = [_STYLE.sub("", line) for line in text.splitlines()]
    head = next((line for line in lines if "GPU0" in line and not line.startswith("GPU0")), "")
    columns = [
        cell.strip() for cell in (head.split("\t") if "\t" in head else re.split(r"\s{2,}", head)) if cell.strip()
    ]
    devices = [name for name in columns if " " not in name]
    others = [name for name in columns if " " in name]
    links: dict[str, dict[str, str]] = {}
    affinity: dict[str, dict[str, str]] = {}
    for line in lines[lines.index(head) + 1 :] if head in lines and devices else []:
        cells = [cell.strip() for cell in (line.split("\t") if "\t" in line else line.split())]
        if not cells or cells[0] not in devices:
            continue
        values = cells[1 : len(devices) + 1]
        if len(values) < len(devices) or not all(_LINK.fullmatch(value) for value in values):
            continue
        links[cells[0]] = {name: value for name, value in zip(devices, values, strict=True) if value != "X"}
        rest = [cell for cell in cells[len(devices) + 1 :] if cell]
        affinity[cells[0]] = {name: value for name, value in zip(others, rest, strict=False) if value != "N/A"}
    nics = {match[1]: match[2] for line in lines if (match := _NIC.match(line))}
    return Topology(links, affinity, nics)


def checks(found: Answer) -> list[Check]:
    """The links in one line; a warning for the pairs that are slow (DDP207)."""
    known = parse(found.text)
    if len(known.gpus) < 2:
        why = found.trouble or "nvidia-smi topo -m printed no matrix"
        return [Check("links", "unknown", why, section="GPUs", todo="Look at it: nvidia-smi topo -m")]
    details = {"links": known.links, "affinity": known.affinity, "nics": known.nics, "linked": known.linked()}
    kinds: dict[str, int] = {}
    for _, _, link in known.pairs():
        kinds[link] = kinds.get(link, 0) + 1
    told = ", ".join(f"{kind or 'unknown'} ({count} pair{'s' * (count > 1)})" for kind, count in kinds.items())
    slow = _slow(known)
    if not slow:
        return [Check("links", "ok", told, section="GPUs", details=details)]
    shown = ", ".join(f"{one}-{other} {link}" for one, other, link in slow[:_SHOWN])
    more = f" and {len(slow) - _SHOWN} more" if len(slow) > _SHOWN else ""
    ways = ", ".join(sorted({_WORDS[link] for *_, link in slow}))
    told = f"{shown}{more}: no NVLink, {ways}" + (f"; in all {told}" if len(kinds) > 1 else "")
    return [Check("links", "warning", told, "DDP207", "GPUs", _todo(known.linked()), details)]


def _slow(known: Topology) -> list[tuple[str, str, str]]:
    """The pairs across sockets; where others have NVLink, also those across host bridges."""
    pairs = list(known.pairs())
    nvlink = any(link.startswith("NV") for *_, link in pairs)
    slow = ("SYS", "NODE") if nvlink else ("SYS",)
    return [pair for pair in pairs if pair[2] in slow]


def _todo(linked: Sequence[Sequence[str]]) -> str:
    largest = max(linked, key=len)
    if len(largest) < 2:
        return "Where a job needs fewer GPUs than there are, choose some of one socket (nvidia-smi topo -m)."
    numbers = ",".join(str(number) for number in sorted(int(name[3:]) for name in largest))
    return f"Where {len(largest)} GPUs are enough, use CUDA_VISIBLE_DEVICES={numbers}, which NVLink connects."
