"""Numbers of ranks in words. Standard library only: ranks say them too, and a Recording is none of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddpnb.recording.calls import runs

_FEW = 12  # ranks that are named one by one


def ranks(numbers: Iterable[int], capital: bool = False) -> str:
    """``rank 1``, ``ranks 0, 2 and 3``, ``ranks 0-7``, ``ranks 0-2 and 4-1023``."""
    found = sorted(set(numbers))
    word = "Rank" if capital else "rank"
    if len(found) == 1:
        return f"{word} {found[0]}"
    if len(found) > 3 and found[-1] - found[0] == len(found) - 1:
        return f"{word}s {found[0]}-{found[-1]}"
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in runs(found)]
    if len(found) > _FEW and len(parts) <= _FEW // 2:  # all but some of very many
        return f"{word}s {', '.join(parts[:-1])} and {parts[-1]}"
    if len(found) > _FEW:
        return f"{word}s {', '.join(map(str, found[:10]))} and {len(found) - 10} more"
    return f"{word}s {', '.join(map(str, found[:-1]))} and {found[-1]}" if found else "no rank"


def besides(numbers: Iterable[int], others: Iterable[int]) -> tuple[int, ...]:
    """The numbers, in their order, without the others: with thousands of ranks both may be thousands."""
    without = frozenset(others)
    return tuple(number for number in numbers if number not in without)


def listed(numbers: Iterable[int]) -> str:
    """The same where it stands before a colon, as short as can be: ``rank 1``, ``ranks 0, 2-7``."""
    found = sorted(set(numbers))
    parts = [
        str(first) if first == last else f"{first}, {last}" if last == first + 1 else f"{first}-{last}"
        for first, last in runs(found)
    ]
    more = f" and {len(parts) - _FEW} more" if len(parts) > _FEW else ""
    return f"rank{'s' * (len(found) > 1)} {', '.join(parts[:_FEW])}{more}"


def verb(numbers: Sequence[int] | frozenset[int] | set[int], one: str, many: str) -> str:
    return one if len(set(numbers)) == 1 else many
