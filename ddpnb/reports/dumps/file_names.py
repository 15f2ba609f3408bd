"""Which rank wrote a dump, by the name of its file."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_NAMED = re.compile(r"rank[^0-9a-z]{0,3}(\d{1,6})(?!\d)", re.IGNORECASE)
_DATE = re.compile(
    r"\d{4}[-_.]\d{2}[-_.]\d{2}(?:[-_.T ]{1,2}\d{2}[-_.:h]\d{2}(?:[-_.:m]\d{2})?)?|\d{8}[-_T.]\d{6}|\d{7,}"
)
_END = re.compile(r"(?:\.(?:gz|json|pkl|pickle|pt|bin|dump|trace|txt|log))+$", re.IGNORECASE)


def ranks(paths: Sequence[str]) -> list[tuple[int, bool]]:
    """The rank that each file names.

    Returns:
        For each file the number behind "rank", else the last number that is not part of a date; where that is the same for
        several files, the last one in which all files differ (``fr_3_attempt1``). -1: none. And whether "rank" is before it.

    Example:
        >>> ranks(["nccl_trace_rank_node02_5", "rank3.pickle", "dump_2026-11-23"])
        [(5, False), (3, True), (-1, False)]
    """
    found = [(-1, False)] * len(paths)
    others: dict[int, list[int]] = {}
    for place, path in enumerate(paths):
        name = _DATE.sub("", _END.sub("", os.path.basename(path)))
        if named := _NAMED.findall(name):
            found[place] = int(named[-1]), True
        else:
            others[place] = [int(number) for number in re.findall(r"\d{1,6}", name)]
    fewest = min(map(len, others.values()), default=0)
    differing = (back for back in range(1, fewest + 1) if len({own[-back] for own in others.values()}) == len(others))
    back = next(differing, 1)
    for place, numbers in others.items():
        if numbers:
            found[place] = numbers[-min(back, len(numbers))], False
    return found
