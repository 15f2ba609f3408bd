"""Versions that differ between ranks."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.recording.facts.init_facts import inits
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.rules.rule import Draft, differ, rule


@rule("DDP107", "version-mismatch")
def versions(snap: Snapshot) -> Iterable[Draft]:
    """torch, CUDA, NCCL or Python differ between ranks."""
    starts = PerRank(inits(snap.recording))
    for name in ("torch", "cuda", "nccl", "python"):
        found = list(
            differ(
                starts.of(lambda start, name=name: start.versions.get(name) or None),
                at=starts,
                one=f"{{who}} [runs|run] {name} {{mine}}, {{others}} {{theirs}}.",
                tie=f"The ranks run different versions of {name}: {{sides}}.",
                line=f"{name} {{}}",
                remedy="Install the same versions for all ranks (one environment or image for the whole job).",
            )
        )
        if found:
            return found
    return ()
