"""Call paths: the user's frames above a call, and where two ranks' paths diverge."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ddpnb.recording.calls import Call, Site
from ddpnb.recording.events.runs import FenceMismatch
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.source.branches import Relation, function_at, relation


def path_to(record: RankRecord, call: Call) -> tuple[Site, ...]:
    """The user's frames that led to ``call``, outermost first.

    Without a stack the site alone, after the line that called its function if that was recorded.
    """
    for fence in record.events(FenceMismatch):
        if fence.call == call.number and fence.path:
            return tuple(Site(caller.file, caller.line, caller.function) for caller in fence.path)
    for frames in _candidates(record):
        for depth in range(len(frames), 0, -1):
            if frames[depth - 1] == call.site:
                return frames[:depth]
    caller, _, line = call.site.via.rpartition(":")
    return (Site(caller, int(line), "?"), call.site) if line.isdigit() else (call.site,)


def _candidates(record: RankRecord) -> list[tuple[Site, ...]]:
    paths = []
    if record.ending is not None:
        paths.append(tuple(frame.site for frame in record.ending.frames if frame.user))
    paths += [tuple(frame.site for frame in stack.user_frames) for stack in record.stacks]
    return paths


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two paths diverge: the two lines, in one file, and their relation."""

    one: Site
    other: Site
    relation: Relation


def parting(recording: Recording, one: tuple[Site, ...], other: tuple[Site, ...]) -> Parting:
    """The first frames at which two ranks' paths differ.

    Paths with the same lines are ``same``. Paths that enter different functions or files from the same
    line are ``exclusive``: what decided is not in the text of this program.
    """
    one, other = _aligned(recording, one, other)
    for a, b in zip(one, other, strict=False):
        if (a.file, a.line) == (b.file, b.line):
            continue
        if a.file == b.file and (a.function == b.function or len(one) == len(other) == 1):
            return Parting(a, b, relation(recording.sources.get(a.file, ""), a.line, b.line))
        return Parting(a, b, "exclusive" if len(one) > 1 and len(other) > 1 else "unknown")
    if (one[-1].file, one[-1].line) == (other[-1].file, other[-1].line):
        return Parting(one[-1], other[-1], "same")
    # One path calls from a line that is the end of the other: two calls within one statement.
    return Parting(
        one[-1], other[-1], "sequence" if len(one) != len(other) and min(len(one), len(other)) > 1 else "unknown"
    )


def _aligned(
    recording: Recording, one: tuple[Site, ...], other: tuple[Site, ...]
) -> tuple[tuple[Site, ...], tuple[Site, ...]]:
    """Both paths from their first common function: without a stack only the last lines of a rank are known."""
    one, other = (
        tuple(
            replace(site, function=function_at(recording.sources.get(site.file, ""), site.line))
            if site.function == "?"
            else site
            for site in path
        )
        for path in (one, other)
    )
    for mine, theirs, turned in ((one, other, False), (other, one, True)):
        for depth, site in enumerate(theirs):
            if (site.file, site.function) == (mine[0].file, mine[0].function):
                return (theirs[depth:], mine) if turned else (mine, theirs[depth:])
    return one, other
