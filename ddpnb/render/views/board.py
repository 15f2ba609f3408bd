"""The board: what every rank is doing now; of many ranks, those with the same state share a tile."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ddpnb.recording import checkpoints
from ddpnb.recording.calls import NO_SITE, Call, Site
from ddpnb.recording.events.runs import Checkpoint, Held
from ddpnb.recording.facts.standings import Standing, standings
from ddpnb.recording.facts.waits import waits
from ddpnb.recording.findings import Finding
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Process, Recording
from ddpnb.render import rank_states
from ddpnb.texts import relative

SINGLE = 64  # up to this many ranks, each has its own tile
_DEFAULT = "default_pg"
_SHOWN = 200  # tiles at most; the last stands for all the others


@dataclass(frozen=True, slots=True)
class Tile:
    """One rank, or several in the same state.

    ``doing`` names the call or event; ``since_s``: for how long it is there (None: it moves); ``finding``: the code of the finding whose culprit it is; ``undecided``: of the
    finding in which it is on one of the sides, where nothing recorded shows which side is at fault. ``call``: ``doing``
    without a group that goes without saying. ``coordinate``: in the mesh of the job. ``last``: how the last run ended on a rank that has left it; ``dead``:
    it has no process. ``checkpoint``: the numbered checkpoint that it passed last; of several ranks, the first of these (``further``: some passed a later one).
    """

    ranks: tuple[int, ...]
    state: RankState
    doing: str = ""
    missing: tuple[int, ...] = ()
    since_s: float | None = None
    site: Site = NO_SITE
    steps: int = 0
    pid: int = 0
    device: str = ""
    coordinate: str = ""
    process: Process = field(default_factory=Process)
    finding: str = ""
    undecided: str = ""
    well: bool = True  # if it has ended: without an error
    checkpoint: Checkpoint | None = None
    further: bool = False
    call: str = ""
    last: str = ""
    dead: bool = False


def tiles(recording: Recording, findings: Iterable[Finding] = ()) -> tuple[Tile, ...]:
    """The ranks of a Recording in rank order; beyond ``SINGLE`` ranks, equal ones share a tile.

    A culprit that has ended has the first line that its finding names for it.

    Args:
        recording: of any moment.
        findings: of that moment, if any are known.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    culprit = {rank: finding.code for finding in reversed(errors) for rank in finding.culprits}
    undecided = {
        rank: finding.code
        for finding in reversed(errors)
        if not finding.culprits
        for side in finding.sides
        for rank in side
    }
    named = [(finding, frozenset(finding.culprits)) for finding in reversed(errors)]
    left = {r: site for f, culprits in named for r, site in reversed(f.where) if r in culprits and site.line}
    by_rank = {
        rank: replace(one, site=left[rank]) if one.state is RankState.ENDED and rank in left else one
        for rank, one in standings(recording).items()
    }
    missing = _missing(recording, by_rank)
    found = [
        _tile(recording, standing, missing.get(rank, ()), culprit.get(rank, ""), undecided.get(rank, ""))
        for rank, standing in sorted(by_rank.items())
    ]
    return tuple(found) if len(found) <= SINGLE else _together(found)


def _missing(recording: Recording, by_rank: dict[int, Standing]) -> dict[int, tuple[int, ...]]:
    """The ranks that each rank waits for. All in one collective wait for the same ranks: one of them is examined."""
    alike: dict[object, list[int]] = {}
    for rank, standing in by_rank.items():
        call = standing.call if standing.call is not None and not standing.call.is_p2p else None
        alike.setdefault((call.group, call.seq) if call is not None else rank, []).append(rank)
    found = waits(recording, {ranks[0]: by_rank[ranks[0]] for ranks in alike.values()}, 0.0)
    waited_for = {ranks[0]: tuple(sorted(found[ranks[0]].missing)) for ranks in alike.values() if ranks[0] in found}
    return {rank: waited_for[ranks[0]] for ranks in alike.values() if ranks[0] in found for rank in ranks}


def _tile(recording: Recording, standing: Standing, missing: tuple[int, ...], finding: str, undecided: str) -> Tile:
    record = standing.record
    idle = standing.shown is RankState.IDLE
    ending = record.ending
    return Tile(
        (standing.rank,),
        standing.shown,
        rank_states.at_rest(record) if idle else _doing(standing),
        missing,
        None if idle else _since(recording, standing),
        standing.site,
        record.steps,
        record.pid,
        record.device,
        record.coordinate,
        record.process,
        finding,
        "" if finding else undecided,
        ending is None or ending.well,
        checkpoints.last(record),
        call=_call(standing),
    )


def _doing(standing: Standing) -> str:
    call = standing.held or standing.call
    if call is not None:
        return f"{call.title} of {call.group}"
    if isinstance(standing.event, Held):
        return _held_at(standing.event)
    if standing.function:
        return standing.function
    if standing.starting is not None:
        return standing.starting.title
    if standing.record.ending is not None:
        return str(standing.record.ending)
    if standing.state is RankState.BLOCKED:
        return standing.record.process.waits_on
    last = standing.record.calls[-1] if standing.record.calls else None
    if last is not None:
        return f"after {last.title}"
    if standing.record.reached:
        return f"after {', '.join(f'#{seq}' for seq in standing.record.reached.values())}"
    return "not in these files" if standing.reported and not standing.record.mentioned else ""


def _held_at(event: Held) -> str:
    """Why a rank is held outside of any collective: ``line 40 of train.py``, or an exception."""
    if event.kind == "exception":
        return f"an exception that is not handled: {event.why}"
    return f"line {event.site.line} of {os.path.basename(relative(event.site.file))}"


def _call(standing: Standing) -> str:
    call = standing.held or standing.call
    if call is None:
        return ""
    return call.title if call.group.label == _DEFAULT else f"{call.title} of {call.group}"


def _since(recording: Recording, standing: Standing) -> float | None:
    began = 0
    call: Call | None = standing.held or standing.call
    if call is not None:
        began = call.entered_ns
    elif isinstance(standing.event, Held):
        began = standing.event.began_ns
    elif standing.starting is not None:
        began = standing.starting.began_ns
    elif standing.function:
        return standing.record.process.still_s or None  # 0: read once, as in a log
    elif standing.state in (RankState.BLOCKED, RankState.UNRESPONSIVE):
        return standing.idle_s
    return (recording.taken_ns - began) * 1e-9 if began and recording.taken_ns > began else None


def _least(tiles: list[Tile]) -> dict[str, Any]:
    """The checkpoint that all of these ranks passed, if the ranks have passed any."""
    passed = [tile.checkpoint for tile in tiles if tile.checkpoint is not None]
    if len(passed) < len(tiles):
        return {"checkpoint": None}
    least = min(passed, key=lambda one: one.number)
    return {"checkpoint": least, "further": any(one.number > least.number for one in passed)}


def _together(found: list[Tile]) -> tuple[Tile, ...]:
    """Ranks in the same state as one tile, the rarest states first."""
    alike: dict[tuple[object, ...], list[Tile]] = {}
    for tile in found:
        alike.setdefault((tile.state, tile.doing, tile.site, tile.finding, tile.undecided, tile.well), []).append(tile)
    grouped = [
        replace(
            tiles[0],
            ranks=tuple(tile.ranks[0] for tile in tiles),
            since_s=max((tile.since_s for tile in tiles if tile.since_s is not None), default=None),
            steps=min(tile.steps for tile in tiles),
            missing=tuple(sorted(set[int]().union(*{id(tile.missing): tile.missing for tile in tiles}.values()))),
            coordinate=tiles[0].coordinate if len(tiles) == 1 else "",
            process=Process() if len(tiles) > 1 else tiles[0].process,
            **_least(tiles),
        )
        for tiles in alike.values()
    ]
    ordered = sorted(grouped, key=lambda tile: (not tile.finding, not tile.undecided, len(tile.ranks), tile.ranks))
    if len(ordered) > _SHOWN:
        rest = [rank for tile in ordered[_SHOWN - 1 :] for rank in tile.ranks]
        ordered[_SHOWN - 1 :] = [Tile(tuple(sorted(rest)), RankState.UNKNOWN, "various")]
    return tuple(ordered)
