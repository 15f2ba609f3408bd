"""Phrases shared by the findings: ranks, calls, places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ddpnb.recording import rank_words
from ddpnb.recording.calls import NO_SITE, UNNAMED, Call, Group, Site
from ddpnb.recording.collectives import root_of
from ddpnb.recording.ending import Ending
from ddpnb.recording.findings import Finding
from ddpnb.recording.recording import RankRecord
from ddpnb.recording.split import by_value

SIDES = 8  # sides that are named one by one
_FEW = 12  # sides of a tie
ranks, listed, besides, verb = rank_words.ranks, rank_words.listed, rank_words.besides, rank_words.verb


def by_place(where: Iterable[tuple[int, Site]]) -> list[tuple[tuple[int, ...], Site]]:
    """The ranks at each place, in the order in which the places are first named."""
    return [(tuple(ranks), site) for site, ranks in by_value(where).items()]


def sentence(text: str) -> str:
    """A text that may end with a message of somebody else, with one full stop."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def counted(record: RankRecord, calls: int) -> str:
    """A number of calls counted among the recorded ones: a lower bound where older ones were dropped."""
    return f"at least {calls}" if record.forgotten else str(calls)


def calls(record: RankRecord, made: int) -> str:
    """``1 call``, ``at least 2 calls``."""
    return f"{counted(record, made)} call{'s' * (made != 1)}"


def ended(ending: Ending | None) -> str:
    """``finished``, ``exited with status 1``, ``was killed (SIGKILL)``, ``raised ValueError: bad``: from the verb on."""
    if ending is None:
        return "ended"
    if ending.how == "raised":
        return f"raised {ending}"
    return f"was {ending}" if ending.how == "died" and ending.code < 0 else str(ending)


def at(site: Site) -> str:
    return (
        (f" {site.placed}" if site.library else "")
        if site == NO_SITE
        else f" at {site}" + (f" in {site.function}" if site.function not in ("?", "<module>") else "")
    )


def by_side(sides: Sequence[Sequence[int]], what: Callable[[int], str]) -> str:
    """``'gloo' on rank 0, 'nccl' on ranks 1 and 2``: what each side has, by its first rank."""
    named = [f"{what(side[0])} on {ranks(side)}" for side in sides[:SIDES]]
    more = [f"{len(sides) - SIDES} more"] if len(sides) > SIDES else []
    return ", ".join(named + more)


def undecided(sides: Sequence[Sequence[int]]) -> list[str]:
    """The evidence line for ranks that differ where no recorded fact tells which is at fault."""
    if not sides:
        return []
    named = " or ".join(ranks(side) for side in sides[:_FEW])
    more = f" or one of {len(sides) - _FEW} more" if len(sides) > _FEW else ""
    return [f"No recorded fact tells which side is at fault: {named}{more}."]


def observed(finding: Finding) -> tuple[str, ...]:
    """The evidence of a finding for another one, which may know more: without the open question of a tie."""
    return tuple(text for text in finding.evidence if text not in undecided(finding.sides))


def tensors(call: Call) -> str:
    text = call.signature.tensors
    return f" ({text})" if text else ""


def in_call(call: Call) -> str:
    """``all_reduce #57 of default_pg (float32 [1024])``, ``all_reduce #2 of mesh_dp with ranks 1 and 3 (float32 [4])``."""
    told = "" if call.op != UNNAMED else " (its name was not recorded)"
    return f"{call.title} of {group(call.group)}{tensors(call)}{told}"


def group(members: Group) -> str:
    """A group by the name that the code gave it, and its ranks: several groups may have one name."""
    named = members.label not in ("", "default_pg")
    return f"{members} with {ranks(members.ranks)}" if named and members.ranks else str(members)


def made(call: Call) -> str:
    """``broadcast(float32 [4], root 3)``: the root as a rank of the world, not of the group."""
    root = root_of(call)
    return str(call.signature if root is None else replace(call.signature, root=root))
