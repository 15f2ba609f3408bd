"""DDP301 or DDP308: ranks that ended while others wait for them in a collective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ddpnb.facts import hints
from ddpnb.facts.paths.partings import parting
from ddpnb.facts.places import where
from ddpnb.facts.standings import Standing
from ddpnb.model import phrases
from ddpnb.model.calls import Call
from ddpnb.model.findings import Finding
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.rules.hangs.skipped_call import COLLECTIVE_MISSING
from ddpnb.rules.hangs.uneven_iterations import calls_like, fewer_batches, uneven_iterations
from ddpnb.source.loops import every_iteration
from ddpnb.source.paths import path_to


def explain(recording: Recording, standings: dict[int, Standing], calls: dict[int, Call], ended: list[int]) -> Finding:
    """Ranks that finished while others wait for them: a shorter loop, or a missing call."""
    waiting = sorted(calls)
    groups = {key: set(group.ranks) for key, group in {call.group.key: call.group for call in calls.values()}.items()}
    without = {key for key, members in groups.items() if not members.isdisjoint(ended)}
    first = next((rank for rank in waiting if calls[rank].group.key in without), waiting[0])
    call = calls[first]
    missing = [rank for rank in ended if rank in groups[call.group.key]] or ended
    been = {rank: calls_like(recording.ranks[rank], call) for rank in missing}
    places = where(standings, [*missing, *waiting])
    evidence = [
        f"{phrases.ranks(waiting, True)} {phrases.verb(waiting, 'is', 'are')} in {phrases.in_call(call)}{phrases.at(standings[first].site)}.",
        *(_ended_after(recording.ranks[rank], call, been[rank]) for rank in missing[:8]),
    ]
    finished = all((ending := recording.ranks[rank].ending) is not None and ending.well for rank in missing)
    how = "finished" if finished else "ended"
    path = path_to(recording.ranks[first], call)
    known = parting(recording, tuple(missing), tuple(waiting))
    counted = fewer_batches(recording, missing)
    left = known.left_loop(missing) if known is not None else counted or every_iteration(recording.sources, path)
    if all(been.values()) and left:
        what = f"{how} after {_counts(recording, been)} at {call.site}"
        finding = uneven_iterations(recording, tuple(missing), tuple(waiting), what, call, places, evidence)
        return replace(finding, certainty="proven") if counted else finding
    return Finding(
        COLLECTIVE_MISSING,
        f"{phrases.ranks(missing, True)} never {phrases.verb(missing, 'calls', 'call')} the {call.op} that "
        f"{phrases.ranks(waiting)} {phrases.verb(waiting, 'is', 'are')} blocked in{phrases.at(standings[first].site)}: "
        f"{phrases.verb(missing, 'it', 'they')} {how}.",
        tuple(missing),
        tuple(waiting),
        call,
        places,
        tuple(evidence),
        "Call it on all ranks or on none: move it out of the condition, or end all ranks together.",
        hint=hints.deciding_branch(recording, path, ended=True),
    )


def _counts(recording: Recording, been: Mapping[int, int]) -> str:
    """How many calls each rank made from one line."""
    words = {rank: phrases.calls(recording.ranks[rank], count) for rank, count in been.items()}
    sides = [[rank for rank in words if words[rank] == text] for text in dict.fromkeys(words.values())]
    return words[sides[0][0]] if len(sides) == 1 else f"{phrases.by_side(sides, words.__getitem__)},"


def _ended_after(record: RankRecord, call: Call, been: int) -> str:
    """How many collectives of the group a rank called before it ended, ``been`` of them at the line of ``call``."""
    text = f"Rank {record.rank} {phrases.ended(record.ending)}"
    made = [c for c in record.calls if c.group.key == call.group.key and c.seq]
    if not record.forgotten:
        lines = f", {been} of them at that line" if made else ""
        return f"{text} after {len(made)} collective{'s' * (len(made) != 1)} in this group{lines}."
    lines = f", at least {been} of them at that line" if been else ""  # none among the recorded calls: no number
    return f"{text} after {made[-1].title} of this group{lines}." if made else f"{text}."  # its number is exact
