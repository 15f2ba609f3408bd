"""The present state of the ranks: the one that head, cards, tiles and time line of a dashboard show.

A run that is over says what happened; it does not say what the ranks are doing now. Both are kept apart here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ddpnb.recording import phrases
from ddpnb.recording.ending import UNKNOWN_SIGNAL, Ending
from ddpnb.recording.facts.standings import standings
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Process, Recording
from ddpnb.render.views.board import Tile, tiles

Activity = Literal[
    "idle", "running", "held", "hang", "crash", "divergence", "interrupted", "released", "unknown", "ok", "starting",
    "ended", "closed",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunState:
    """The last run. ``outcome``: as ``Run.outcome``; ``members``: the ranks whose process is still in it.

    ``replaced``: ranks whose process is newer than the run.
    """

    outcome: str = "running"
    members: frozenset[int] = frozenset()
    replaced: frozenset[int] = frozenset()

    @property
    def over(self) -> bool:
        return not self.members and self.outcome != "running"


@dataclass(frozen=True, slots=True)
class Present:
    """The state of all ranks at one moment.

    ``activity`` is what happens now, ``last`` the outcome of the last run once it is over (before that, and without
    a run, empty). ``diagnosis``: of that run, with all ranks that wait now. ``dead``: ranks without a process.
    ``holds``: how many are armed. The recording has the dead ranks as dead.
    """

    recording: Recording
    activity: Activity = "idle"
    last: str = ""
    diagnosis: Diagnosis | None = None
    tiles: tuple[Tile, ...] = ()
    members: frozenset[int] = frozenset()
    dead: tuple[int, ...] = ()
    holds: int = 0
    followed: bool = (
        False  # the ranks were started elsewhere: when something was detected says when they were looked at
    )

    @property
    def over(self) -> bool:
        """Whether there was a run, and it is over."""
        return bool(self.last)

    @property
    def busy(self) -> bool:
        """Whether ranks are in a run or in a start-up step."""
        return bool(self.members) or self.activity == "starting"

    @property
    def details(self) -> tuple[str, ...]:
        """What the head says besides the activity."""
        found: list[str] = []
        detected = self.diagnosis.timing.get("diagnosis_s") if self.diagnosis is not None else None
        if self.activity == "hang" and detected and not self.followed:
            found.append(f"detected after {detected:.1f} s")
        if self.activity in ("crash", "divergence", "hang") and len(self.members) < len(self.recording.ranks):
            still = sorted(self.members)
            found.append(f"{phrases.ranks(still)} {phrases.verb(still, 'is', 'are')} still in the run")
        dead = list(self.dead)
        if dead and self.activity != "closed":
            found.append(f"{phrases.ranks(dead)} {phrases.verb(dead, 'is', 'are')} dead")
        if self.holds and self.activity == "idle":
            found.append("a hold is armed" if self.holds == 1 else f"{self.holds} holds are armed")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of the ranks. ``dead``: rank -> exit status (None: not known yet) of those that have ended.

    ``ends_with_script``: they end with what they run, as those of a job do.
    """

    dead: Mapping[int, int | None] = field(default_factory=dict[int, "int | None"])
    ends_with_script: bool = False


def present(
    recording: Recording,
    run: RunState | None = None,
    diagnosis: Diagnosis | None = None,
    processes: Processes = Processes(),  # frozen
    *,
    starting: Mapping[int, str] | None = None,
    holds: int = 0,
    closed: bool = False,
) -> Present:
    """What the ranks are doing now, and how the last run ended.

    Args:
        recording: of this moment.
        run: the last run; None: nothing has run.
        diagnosis: of that run, once it is known.
        processes: of the ranks, at this moment.
        starting: rank -> the start-up step that it is in.
        holds: how many are armed.
        closed: the ranks cannot be reached any more.

    Example:
        >>> present(recording, RunState("hang"), diagnosis).activity
        'idle'
    """
    starting = starting or {}
    dead = {} if processes.ends_with_script else processes.dead
    recording = _with_deaths(recording, dead)
    over = run is not None and run.over
    members = run.members if run is not None else frozenset[int]()
    stands = standings(recording)
    held = any(stands[rank].state is RankState.HELD for rank in members if rank in stands)
    shown = tiles(recording, diagnosis.findings if diagnosis is not None and run and not run.replaced else ())
    idle = not processes.ends_with_script
    shown = tuple(_tile(tile, run if idle else None, starting, dead) for tile in shown)
    return Present(
        recording,
        _activity(run, starting, held=held, idle=idle, closed=closed),
        run.outcome if run is not None and over else "",
        diagnosis,
        shown,
        frozenset() if closed else members,
        tuple(sorted(dead)),
        holds,
        processes.ends_with_script,
    )


def _activity(run: RunState | None, starting: Collection[int], *, held: bool, idle: bool, closed: bool) -> Activity:
    if closed:
        return "closed"
    if starting:
        return "starting"
    if run is None:
        return "idle"
    if run.over:
        return "idle" if idle else "ended"
    if held:
        return "held"
    return run.outcome if run.outcome in _KNOWN else "running"  # pyright: ignore[reportReturnType]


_KNOWN = ("hang", "crash", "divergence", "interrupted", "released", "unknown", "ok")


def _with_deaths(recording: Recording, dead: Mapping[int, int | None]) -> Recording:
    """A rank whose process is dead does not wait, and is not idle."""
    changed = {}
    for rank, status in dead.items():
        record = recording.ranks.get(rank)
        if record is None or (record.ending is not None and record.ending.how == "died"):
            continue
        at_ns = record.ending.at_ns if record.ending is not None else recording.taken_ns
        frames = record.ending.frames if record.ending is not None else ()
        ending = Ending("died", UNKNOWN_SIGNAL if status is None else status, at_ns=at_ns, frames=frames)
        changed[rank] = replace(record, ending=ending, process=Process("gone"), stacks=())
    return replace(recording, ranks={**recording.ranks, **changed}) if changed else recording


def _tile(tile: Tile, run: RunState | None, starting: Mapping[int, str], dead: Collection[int]) -> Tile:
    """A tile shows what its ranks are doing now: a rank that has left a run of the World is idle."""
    if any(rank in dead for rank in tile.ranks):
        return replace(tile, dead=True, missing=(), since_s=None)
    if any(rank in starting for rank in tile.ranks):
        step = next(starting[rank] for rank in tile.ranks if rank in starting)
        return replace(tile, state=RankState.STARTING, doing=f"start-up: {step}")
    if run is None or tile.state is RankState.IDLE or any(rank in run.members for rank in tile.ranks):
        return tile
    if run.over:
        how = tile.doing if tile.state is RankState.ENDED else ""
        return replace(tile, state=RankState.IDLE, last=how or run.outcome, doing="", missing=(), since_s=None)
    if tile.state is not RankState.ENDED and run.outcome != "running":
        return replace(tile, state=RankState.ENDED, doing="left the run", missing=(), since_s=None)
    return tile
