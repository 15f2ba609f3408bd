"""What each rank waits for while the ranks start up one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddpnb.recording import phrases
from ddpnb.recording.startup import STEPS, TOGETHER, StartupState
from ddpnb.render.views import new_group


def needs(state: StartupState, rank: int) -> tuple[int, ...]:
    """The ranks without which the running step of this rank cannot end."""
    step = state.running_of(rank)
    if step is None:
        return ()
    others = [other for other in range(state.world_size) if other != rank]
    wanted = others if step in TOGETHER or (step == "store" and rank == 0) else [0] if step == "store" else []
    return tuple(other for other in wanted if not _came(state, other, step) or _elsewhere(state, rank, other, step))


def meets(state: StartupState, rank: int) -> bool:
    """Whether the running step of this rank is one in which it meets others."""
    step = state.running_of(rank)
    return step == "store" or step in TOGETHER


def _came(state: StartupState, rank: int, step: str) -> bool:
    if rank in state.dead:
        return False
    return state.at(rank, step).state in ("running", "done")


def _elsewhere(state: StartupState, mine: int, rank: int, step: str) -> bool:
    """Whether the other rank uses a different store: its progress there does not help."""
    if step != "store":
        return False
    here, there = (state.at(one, "environment").facts.get("address") for one in (mine, rank))
    return here != there


def sentence(state: StartupState, rank: int) -> str:
    """What the rank is doing: ``waits in the store for 2 of 4 ranks: 2 and 3``."""
    step = state.running_of(rank)
    if rank in state.dead:
        return "is dead"
    if rank in state.stopped:
        return "is stopped (SIGSTOP)"
    if step is None:
        failed = next((s for s in STEPS if state.at(rank, s).state == "failed"), None)
        if failed is not None:
            return f"failed at {failed}: {state.at(rank, failed).error}"
        following = state.next_of(rank)
        return "all steps are done" if following is None else f"ready for {following}"
    missing = needs(state, rank)
    if not missing:
        return f"is at {step}"
    where = "in the store" if step == "store" else f"in {step}"
    if step == "store" and rank != 0:
        address = state.at(rank, "environment").facts.get("address", "")
        return f"waits for rank 0 to start the store at {address}{_why(state, 0, step)}"
    named = phrases.ranks(missing).removeprefix("ranks ").removeprefix("rank ")
    reasons = {reason for other in missing if (reason := _why(state, other, step))}
    more = reasons.pop() if len(reasons) == 1 else ""
    return f"waits {where} for {len(missing)} of {state.world_size} ranks: {named}{more}"


def _why(state: StartupState, rank: int, step: str) -> str:
    """Why this rank is missing, as a suffix of a sentence."""
    if rank in state.dead:
        return " (dead)"
    failed = next((s for s in STEPS if state.at(rank, s).state == "failed"), None)
    if failed is not None:
        return f" (failed at {failed})"
    if state.at(rank, step).state == "running":
        return f" (rank {rank} is at {state.at(rank, 'environment').facts.get('address', 'another address')})"
    return ""


def notes(state: StartupState) -> list[str]:
    """What the ranks do, and in which facts they differ, in sentences."""
    by_sentence: dict[str, list[int]] = {}
    for rank in range(state.world_size):
        by_sentence.setdefault(sentence(state, rank), []).append(rank)
    lines = [
        f"{phrases.ranks(ranks)}: {_plural(doing) if len(ranks) > 1 else doing}" for doing, ranks in by_sentence.items()
    ]
    lines += new_group.sentences({rank: state.at(rank, "process group").facts for rank in range(state.world_size)})
    for step in STEPS:
        for name, values in odd_facts(state, step).items():
            listed = ", ".join(f"{value} on rank {rank}" for rank, value in list(values.items())[:8])
            lines.append(f"the ranks differ in {name}: {listed}")
    return lines


def _plural(doing: str) -> str:
    for singular, plural in (("is ", "are "), ("waits ", "wait ")):
        if doing.startswith(singular):
            return plural + doing.removeprefix(singular)
    return doing


def odd_facts(state: StartupState, step: str) -> Mapping[str, Mapping[int, Any]]:
    """Facts of a step that differ between the ranks that have done it, except rank-specific ones."""
    done = {rank: state.at(rank, step).facts for rank in range(state.world_size) if state.at(rank, step).facts}
    names = dict.fromkeys(name for facts in done.values() for name in facts)
    return {
        name: {rank: facts.get(name) for rank, facts in done.items()}
        for name in names
        if name not in _OWN and len({repr(facts.get(name)) for facts in done.values()}) > 1
    }


#: rank-specific facts
_OWN = frozenset(
    (
        new_group.KEPT,
        new_group.TROUBLES,
        new_group.LOST,
        "RANK",
        "LOCAL_RANK",
        "ROLE_RANK",
        "rank",
        "device",
        "pid",
        "peers",
        "role",
        "took",
        "loss",
        "name",
        "free",
        "device_ids",
        "on",
    )
)
