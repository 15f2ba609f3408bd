"""DDP301: ranks are at one line of the user's, but took different ways in the library that it calls."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddpnb.recording import phrases
from ddpnb.recording.calls import Site
from ddpnb.recording.facts.stacks import below_user, frames_at
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.findings import Finding
from ddpnb.recording.split import by_value
from ddpnb.recording.stacks import Frame
from ddpnb.rules.causes.frameworks import framework_call
from ddpnb.rules.rule import Draft, refined, title

_INSTALLED = re.compile(r".*/(?:site|dist)-packages(?=/)")
_OWN = ("/torch/", "/ddpnb/")
_SHOWN = 4


def parted(standings: Mapping[int, Standing], finding: Finding) -> Draft | None:
    """Whether one function of a library called different others on the ranks of a finding."""
    ranks = sorted(finding.concerned)
    if len(ranks) < 2 or not standings.keys() >= set(ranks) or len({standings[rank].site for rank in ranks}) > 1:
        return None
    calls = {known[0] if (known := framework_call(standings[rank])) is not None else "" for rank in ranks}
    if len(calls) > 1:
        return None  # the framework's own words for these calls say more
    inside = {rank: _library_frames(frames_at(standings[rank])) for rank in ranks}
    depth = next((d for d, at in enumerate(zip(*inside.values(), strict=False)) if len(set(at)) > 1), None)
    if depth is None or not all(len(frames) > depth + 1 for frames in inside.values()):
        return None
    at = {rank: frames[depth] for rank, frames in inside.items()}
    if len({(frame.file, frame.function) for frame in at.values()}) > 1:
        return None
    sides = by_value((rank, inside[rank][depth + 1].function) for rank in ranks)
    if len(sides) < 2:
        return None
    function, site = at[ranks[0]].function, standings[ranks[0]].site
    ways = "; ".join(
        f"{phrases.ranks(side, not number)} {phrases.verb(side, 'is', 'are')} in {called}()"
        for number, (called, side) in enumerate(sides.items())
    )
    whole = f"{ways}, called by {function}() inside {site}: their calls were matched."
    short = f"{phrases.ranks(ranks, True)} took different ways in {function}() inside {site}: their calls were matched."
    said = title(whole, f"{ways}, called by {function}() inside {site}.", short)
    lines = (f"Rank {rank}: {frame} in {frame.function}()." for rank, frame in list(at.items())[:_SHOWN])
    return refined(
        finding,
        summary=said,
        evidence=(
            *([f"{ways}."] if said == short else []),
            *phrases.observed(finding),
            *lines,
            *phrases.undecided(finding.sides),
        ),
        remedy=f"What decides the way through {function}() must be the same on all ranks: a callback that stops the training, or a "
        "number of steps, say. all_reduce it first.",
        certainty="likely",
    )


def _library_frames(frames: tuple[Frame, ...]) -> list[Site]:
    """Those of libraries other than torch that the innermost line of the user's called."""
    called = below_user(frames)
    own = (number for number, frame in enumerate(called) if _is_own(frame.file))
    return [frame.site for frame in called[: next(own, len(called))]]


def _is_own(file: str) -> bool:
    """Whether a file is of torch or of ddpnb; the environment of a library may lie in a folder of that name."""
    return any(part in _INSTALLED.sub("", file, count=1) for part in _OWN)
