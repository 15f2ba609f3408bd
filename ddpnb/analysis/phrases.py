"""Words shared by the findings: lists of ranks, calls, places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddpnb.model.calls import NO_SITE, Call, Site


def ranks(numbers: Iterable[int], capital: bool = False) -> str:
    """``rank 1``, ``ranks 0, 2 and 3``, ``ranks 0-7``."""
    found = sorted(set(numbers))
    word = "Rank" if capital else "rank"
    if len(found) == 1:
        return f"{word} {found[0]}"
    if len(found) > 3 and found[-1] - found[0] == len(found) - 1:
        return f"{word}s {found[0]}-{found[-1]}"
    if len(found) > 12:
        return f"{word}s {', '.join(map(str, found[:10]))} and {len(found) - 10} more"
    return f"{word}s {', '.join(map(str, found[:-1]))} and {found[-1]}" if found else "no rank"


def verb(numbers: Sequence[int] | frozenset[int] | set[int], one: str, many: str) -> str:
    return one if len(set(numbers)) == 1 else many


def at(site: Site) -> str:
    return (
        ""
        if site == NO_SITE
        else f" at {site}" + (f" in {site.function}" if site.function not in ("?", "<module>") else "")
    )


def tensors(call: Call) -> str:
    text = ", ".join(
        f"{dtype} {list(shape)}" for shape, dtype in zip(call.signature.shapes, call.signature.dtypes, strict=False)
    )
    return f" ({text})" if text else ""


def in_call(call: Call) -> str:
    """``all_reduce #57 of default_pg (float32 [1024])``"""
    return f"{call.title} of {call.group}{tensors(call)}"
