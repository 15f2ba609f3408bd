"""Expressions of the generated script. What comes from a recording is written as a number, a known name or a literal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

Case = tuple[int, int]  # a live rank, and the iteration of the loop around the line


def base_name(file: str) -> str:
    """The name of a file without its folders, on any system."""
    return file.replace("\\", "/").rpartition("/")[2]


def ranks_are(ranks: Iterable[int]) -> str:
    """A condition.

    Example:
        >>> ranks_are([1, 2])
        'rank in (1, 2)'
    """
    found = sorted(ranks)
    return f"rank == {found[0]}" if len(found) == 1 else f"rank in {tuple(found)}"


def ranks_are_not(ranks: Iterable[int]) -> str:
    found = sorted(ranks)
    return f"rank != {found[0]}" if len(found) == 1 else f"rank not in {tuple(found)}"


def one_of(values: Mapping[Case, str]) -> str:
    """An expression that has one of these values on each rank in each iteration.

    Args:
        values: expressions.

    Example:
        >>> one_of({(0, 0): "10", (1, 0): "12", (2, 0): "10"})
        '12 if rank == 1 else 10'
    """
    counts = Counter(values.values())
    if len(counts) == 1:
        return next(iter(counts))
    usual = counts.most_common(1)[0][0]
    by_rank = _depends(values, 0)
    if by_rank is not None:
        odd = {rank: value for rank, value in by_rank.items() if value != usual}
        if len(set(odd.values())) == 1:
            return f"{next(iter(odd.values()))} if {ranks_are(odd)} else {usual}"
        return f"{_dictionary(odd)}.get(rank, {usual})"
    by_step = _depends(values, 1)
    if by_step is not None:
        return f"{_dictionary({step: value for step, value in by_step.items() if value != usual})}.get(step, {usual})"
    odd_cases = {case: value for case, value in sorted(values.items()) if value != usual}
    return f"{_dictionary(odd_cases)}.get((rank, step), {usual})"


def _depends(values: Mapping[Case, str], on: int) -> dict[int, str] | None:
    """The values by rank (0) or by iteration (1), if that alone decides."""
    found: dict[int, str] = {}
    for case, value in sorted(values.items()):
        if found.setdefault(case[on], value) != value:
            return None
    return found


def _dictionary(values: Mapping[int, str] | Mapping[Case, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in values.items()) + "}"
