"""Versions that differ between ranks."""

from __future__ import annotations

from ddpnb.facts.digests import split
from ddpnb.facts.init_facts import inits
from ddpnb.facts.places import where
from ddpnb.model import phrases
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording

VERSION_MISMATCH = FindingType("DDP107", "version-mismatch")


def find(recording: Recording) -> Finding | None:
    """DDP107: torch, CUDA, NCCL or Python differ between ranks."""
    starts = inits(recording)
    for name in ("torch", "cuda", "nccl", "python"):
        told = {rank: start.versions[name] for rank, start in starts.items() if start.versions.get(name)}
        apart = split(told)
        if apart.differs:
            odd, others = apart.odd, apart.sides[0]
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
                where(starts, (*odd, *others)),
                (
                    *(f"Rank {rank}: {name} {version}." for rank, version in sorted(told.items())[:8]),
                    *phrases.undecided(sides),
                ),
                "Install the same versions for all ranks (one environment or image for the whole job).",
                sides=sides,
            )
    return None
