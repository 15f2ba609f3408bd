"""Hints: which condition may have decided the path of a rank, by the source text and the variables in its frame."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddpnb.model.calls import Site
from ddpnb.model.findings import Hint
from ddpnb.model.phrases import ranks
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.model.stacks import NOT_SHOWN
from ddpnb.source.branches import candidates, other_ways
from ddpnb.source.paths import Parting


def deciding_branch(recording: Recording, path: Sequence[Site], ended: bool = False) -> Hint | None:
    """The only condition that may have kept a rank from the end of ``path``; None where something else may have.

    Args:
        recording: holds the sources.
        path: the lines by which others came there, outermost first.
        ended: the rank has left the script, so a ``continue`` is no explanation.
    """
    if any(other_ways(recording.sources.get(site.file, ""), site.line) for site in path):
        return None
    found = {
        (site.file, line): text
        for site in path
        for line, text in candidates(recording.sources.get(site.file, ""), site.line, ended)
    }
    if len(found) != 1:
        return None
    ((file, line), text) = next(iter(found.items()))
    return Hint(file, line, f"{text} decides which ranks get there")


def different_locals(
    recording: Recording, where: Parting, culprits: Sequence[int], waiting: Sequence[int], conditions: str
) -> list[str]:
    """Variables of these conditions in which the culprits differ from the waiting ranks.

    Looked up in the frame in which the ranks' paths diverge.
    """
    values = {rank: _locals_of(recording.ranks[rank], where) for rank in (*culprits, *waiting)}
    found: list[str] = []
    names = set(re.findall(r"\w+", conditions))
    for name in (name for name in values[culprits[0]] if name in names):
        mine = {values[rank].get(name) for rank in culprits}
        theirs = {values[rank].get(name) for rank in waiting}
        if len(mine) == len(theirs) == 1 and mine != theirs and not {None, NOT_SHOWN} & (mine | theirs):
            found.append(f"{name} is {mine.pop()} on {ranks(culprits)}, {theirs.pop()} on {ranks(waiting)}.")
    return found[:3]


def _locals_of(record: RankRecord, where: Parting) -> dict[str, str]:
    frames = [frame for stack in record.stacks for frame in stack.frames]
    if record.ending is not None:
        frames += record.ending.frames
    for frame in frames:
        if frame.site in (where.one, where.other):
            return dict(frame.locals)
    return {}
