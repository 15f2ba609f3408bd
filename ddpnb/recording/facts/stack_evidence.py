"""What stacks show of ranks that wait: since when, whether a rank is past their call, and which variables differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ddpnb.recording import phrases
from ddpnb.recording.calls import Site
from ddpnb.recording.facts.stack_calls import WORK
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.source.loops import loop_around

FEW = 8  # ranks with an evidence line of their own


def still_s(standing: Standing) -> float:
    """For how long a rank has been in one call: its main thread has not run, and nothing in its process computed."""
    return min(standing.idle_s, standing.record.process.still_s)


def waiting_lines(standings: Mapping[int, Standing], waiting: Sequence[int]) -> list[str]:
    """Where these ranks wait, one line each."""
    by_text = [rank for rank in waiting if standings[rank].function == WORK]
    guess = (
        [f"The wait for a Work of {phrases.ranks(by_text)} is inferred from the text of the line."] if by_text else []
    )
    return guess + [
        (
            f"Rank {rank} was in {standings[rank].function}"
            if standings[rank].reported
            else f"The main thread of rank {rank} has been in {standings[rank].function} for {still_s(standings[rank]):.0f} s"
        )
        + f"{phrases.at(standings[rank].site)}."
        for rank in waiting[:FEW]
    ]


def is_past(recording: Recording, waits: RankRecord, other: RankRecord) -> bool:
    """Whether a rank is behind the call in which another one waits, in the same function and in no loop with it."""
    mine, theirs = _path(other), _path(waits)
    for here, there in zip(mine, theirs, strict=False):
        if here != there:
            if (here.file, here.function) != (there.file, there.function) or here.line <= there.line:
                return False
            source = recording.sources.get(here.file, "")
            loop = loop_around(source, there.line)
            return bool(source) and not (loop is not None and loop[0] <= here.line <= loop[1])
        if loop_around(recording.sources.get(here.file, ""), here.line) is not None:
            return False  # it may be in an earlier iteration
    return False


def _path(record: RankRecord) -> list[Site]:
    stack = record.main_stack
    return [frame.site for frame in stack.user_frames] if stack is not None else []


def different_variables(standings: Mapping[int, Standing], ranks: Sequence[int]) -> list[str]:
    """Numbers that differ between ranks in the user's frame where they wait: ``step`` tells that one is ahead."""
    texts: dict[str, dict[int, str]] = defaultdict(dict)
    for rank in ranks:
        stack = standings[rank].record.main_stack
        frame = stack.innermost_user if stack is not None else None
        for name, text in frame.locals.items() if frame is not None else ():
            if text.lstrip("-").isdecimal() and name.lower() not in ("rank", "local_rank", "global_rank"):
                texts[name][rank] = text[:40]
    differing = {name: held for name, held in texts.items() if len(held) > 1 and len(set(held.values())) > 1}
    return [
        f"{name} is {', '.join(f'{text} on rank {rank}' for rank, text in list(held.items())[:FEW])}."
        for name, held in list(differing.items())[:FEW]
    ]
