"""What a new default process group means for what the ranks have made before, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ddpnb.recording import phrases

#: facts of the step ``process group`` that this module shows
KEPT, TROUBLES, LOST = "models kept", "troubles", "lost"


def sentences(facts: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """What uses the new group, and what must be made again.

    Args:
        facts: of the step ``process group``, by rank.
    """
    found: list[str] = []
    kept: dict[int, list[int]] = {}
    for rank, told in facts.items():
        if told.get(KEPT):
            kept.setdefault(int(told[KEPT]), []).append(rank)
    for count, ranks in kept.items():
        models = "1 model" if count == 1 else f"{count} models"
        if len(ranks) == len(facts):
            found.append(f"{models} wrapped in DistributedDataParallel {'uses' if count == 1 else 'use'} it.")
        else:
            here = f"{phrases.ranks(ranks)} {phrases.verb(ranks, 'has', 'have')}"
            found.append(f"Only {here} {models} wrapped in DistributedDataParallel: wrap again on all ranks.")
    found += [f"{trouble}." for trouble in _each(facts, TROUBLES)]
    if lost := again(_each(facts, LOST)):
        found.append(lost)
    return found


def again(users: Iterable[str]) -> str:
    """What must be made again; empty if nothing."""
    listed = list(users)
    return f"Make again what used the old groups: {', '.join(listed)}." if listed else ""


def _each(facts: Mapping[int, Mapping[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(str(one)[:300] for told in facts.values() for one in told.get(name) or ()))
