"""Why ranks cannot continue: each independent stop, with what decides which finding it is.

A stop is a cell of one table (``rules/hangs/table.py``): in what ranks wait, what those that they wait for do, and how these
left their way.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto
from functools import cached_property

from ddpnb.recording.calls import Call, CallState, Site
from ddpnb.recording.collectives import Collective, call_in
from ddpnb.recording.events.startup import DestroyProcessGroup, InitProcessGroup, NewGroup, StoreMade
from ddpnb.recording.facts import endings
from ddpnb.recording.facts.cycles import connected_parts, ranks_in_a_cycle
from ddpnb.recording.facts.departures import Departure, Left, from_calls, from_end, from_groups
from ddpnb.recording.facts.init_facts import address_of, knocks_within, stale_start, wrong_claims
from ddpnb.recording.facts.mismatches import fatal_mismatch, first_mismatch, raised_in
from ddpnb.recording.facts.missing_ranks import MissingRanks, missing_ranks
from ddpnb.recording.facts.patience import PATIENCE
from ddpnb.recording.facts.standings import Standing, before_init
from ddpnb.recording.facts.waits import Wait, stuck, waits
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.split import by_value


class Waits(StrEnum):
    """In what ranks wait."""

    CALLS = auto()  # in calls with one number that differ, or that the fence has refused
    COLLECTIVE = auto()
    POINT_TO_POINT = auto()
    QUEUE = auto()  # of a device
    START = auto()  # in init_process_group or init_rpc
    GROUP = auto()  # in new_group
    STORE = auto()  # creating a store
    ANYTHING = auto()
    STACK = auto()  # in a call that only the stacks show
    NOTHING = auto()  # none waits for another


class Awaited(StrEnum):
    """What those do for which they wait."""

    DIFFERS = auto()  # they wait for each other, in calls that differ
    EACH_OTHER = auto()
    ENDED = auto()
    DIED = auto()
    RAISED = auto()
    BLOCKED = auto()  # outside any collective
    UNRESPONSIVE = auto()
    ABSENT = auto()  # were never started
    WRONG_CLAIM = auto()  # claim a rank that is another's, or none
    ELSEWHERE = auto()  # use another address
    STALE = auto()  # an earlier run had left their addresses
    PAST = auto()  # are past the call, as their stacks show
    MOVING = auto()
    SILENT = auto()  # it is not known what they did


@dataclass(frozen=True)
class Stop:
    """Ranks that cannot continue.

    ``waiting``: those that wait. ``gone``: those for which they wait, or that have failed. ``standings`` and ``waits_for``: of all
    ranks, when it happened. ``collective``: whose calls differ. ``left``: how a side left its way. ``lost``: ranks that lost
    their connection to one that failed. ``secondary``: these failed since another one did, of which nothing is known.
    ``then``: a later one of its group whose calls differ too, where ranks failed or are blocked.
    """

    waits: Waits
    awaited: Awaited
    waiting: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    standings: Mapping[int, Standing] = field(default_factory=dict[int, Standing], compare=False, repr=False)
    waits_for: Mapping[int, Wait] = field(default_factory=dict[int, Wait], compare=False, repr=False)
    collective: Collective | None = None
    left: Departure | None = None
    lost: tuple[int, ...] = ()
    secondary: bool = False
    then: Collective | None = None

    @property
    def cell(self) -> tuple[Waits, Awaited, Left | None]:
        return self.waits, self.awaited, self.left.how if self.left is not None else None

    @property
    def suspected(self) -> bool:
        """Whether nothing but how long ranks have not moved supports it."""
        return self.waits in (Waits.NOTHING, Waits.STORE) or self.cell[:2] == (Waits.START, Awaited.EACH_OTHER)

    @cached_property
    def calls(self) -> dict[int, Call]:
        """The calls in which its ranks wait."""
        found = {rank: self.standings[rank].call for rank in self.waiting if rank in self.standings}
        return {rank: call for rank, call in found.items() if call is not None}

    @cached_property
    def first(self) -> int:
        """Its first waiting rank whose call needs one that is gone."""
        groups = {call.group.key: call.group for call in self.calls.values()}
        short = {key for key, group in groups.items() if not set(group.ranks).isdisjoint(self.gone)}
        return next((rank for rank in self.waiting if self.calls[rank].group.key in short), self.waiting[0])

    @property
    def places(self) -> dict[int, Site]:
        """Where its ranks are: those that are gone, then those that wait."""
        return {rank: self.standings[rank].site for rank in (*self.gone, *self.waiting) if rank in self.standings}

    def among(self, *states: RankState) -> list[int]:
        """Its waiting ranks in these states."""
        return [rank for rank in self.waiting if self.standings[rank].state in states]


def stops(
    recording: Recording,
    standing: Mapping[int, Standing],
    found_waits: Mapping[int, Wait],
    held: frozenset[int],
    patience: float,
) -> tuple[Stop, ...]:
    """All of them: calls that differ, else failures, else ranks that wait for each other; a mismatch that completed comes last.

    Args:
        recording: of one moment.
        standing: of each rank.
        found_waits: of each waiting rank.
        held: the ranks that can never continue.
        patience: seconds.
    """
    odd, fatal = first_mismatch(recording), fatal_mismatch(recording)
    differs = _differs(recording, odd, standing, found_waits) if odd is not None else None
    found = failures(recording, standing, found_waits)
    if odd is not None and differs is not None and fatal is not None:
        # A rank that raised and then, on its way out, made another call than its peers.
        failed = {rank for stop in found for rank in stop.gone} & set(fatal.calls)
        before = any(
            (end := (record := standing[rank].record).ending) is not None
            and end.how == "raised"
            and not raised_in(record, fatal.calls[rank])
            for rank in failed
        )
        if before and not endings.handled_refusal(recording):
            return (*found, differs) if odd.completed else tuple(found)
        if fatal is odd:
            return (differs,)
        if fatal.group.key == odd.group.key:  # it follows from the first one, or from what made that differ
            return (replace(differs, then=fatal),)
        return _differs(recording, fatal, standing, found_waits), differs
    lost = {rank for rank, record in recording.ranks.items() if endings.is_consequence(record)} if not found else set()
    if lost:
        found = _why_lost(recording, standing, lost) or failures(recording, standing, found_waits, consequences=True)
    if not found:
        found = _blocked(recording, standing, found_waits, held, patience)
        found = found or _queued(recording, standing, patience)
    if differs is not None:  # it completed silently, with wrong numbers
        found = [*found, differs]
    return tuple(found or _nobody_moves(standing, found_waits, patience))


def _differs(
    recording: Recording, odd: Collective, standing: Mapping[int, Standing], found_waits: Mapping[int, Wait]
) -> Stop:
    left = from_calls(recording, odd)
    return Stop(Waits.CALLS, Awaited.DIFFERS, tuple(odd.calls), (), standing, found_waits, odd, left)


def failures(
    recording: Recording,
    standing: Mapping[int, Standing],
    found_waits: Mapping[int, Wait],
    *,
    consequences: bool = False,
) -> list[Stop]:
    """A stop per independent failure, the earliest first; consequences are left out unless asked for."""
    lost = [rank for rank, record in sorted(recording.ranks.items()) if endings.is_consequence(record)]
    known = set[int]() if consequences else set(lost) | endings.ended_after(recording, lost)
    needed = frozenset[int]().union(*{wait.missing for wait in found_waits.values()})
    # A process that exited with status 0 (os._exit) has failed if others needed it.
    roots = {
        rank: record.ending
        for rank, record in recording.ranks.items()
        if record.ending is not None
        and (not record.ending.well or (record.ending.how == "died" and (bool(lost) or rank in needed)))
        and rank not in known
        and not endings.is_fence_stop(record.ending)
    }
    groups: dict[tuple[object, ...], list[int]] = {}
    then = endings.ended_after(recording, [rank for rank, ending in roots.items() if ending.code != -signal.SIGTERM])
    for rank in sorted(roots.keys() - then, key=lambda rank: (roots[rank].code == -signal.SIGTERM, roots[rank].at_ns)):
        ending = roots[rank]
        frame = ending.innermost_user
        groups.setdefault((ending.how, ending.code, ending.exception, frame and frame.site), []).append(rank)
    alike = by_value((rank, wait.missing) for rank, wait in found_waits.items())  # those that wait for the same ranks
    found: list[Stop] = []
    for ranks in map(sorted, groups.values()):
        failed = frozenset(ranks)
        others = tuple(rank for rank in lost if rank not in failed)
        waiting = {rank for missing, ones in alike.items() if not missing.isdisjoint(failed) for rank in ones}
        died = roots[ranks[0]].how in ("died", "ended")
        awaited = Awaited.DIED if died else Awaited.RAISED
        found.append(
            Stop(
                Waits.ANYTHING,
                awaited,
                tuple(sorted(waiting.union(others))),
                tuple(ranks),
                standing,
                found_waits,
                lost=others,
                secondary=consequences,
            )
        )
    return found


def _why_lost(recording: Recording, standing: Mapping[int, Standing], lost: set[int]) -> list[Stop]:
    """Every failure is a secondary one: what these ranks waited for when they failed."""
    if stale_start(recording) is not None:
        return [Stop(Waits.START, Awaited.STALE, lost=tuple(sorted(lost)), standings=standing)]
    then = dict(standing)
    missing = missing_ranks(recording)
    for rank in lost:
        record = recording.ranks[rank]
        failed = [call for call in record.calls if call.state.name == "FAILED"] or _needed(recording, missing, record)
        events = record.events(InitProcessGroup, NewGroup, state="failed")
        if failed:
            then[rank] = replace(standing[rank], state=RankState.WAITING, call=failed[-1], site=failed[-1].site)
        elif events:
            state = RankState.STARTING if isinstance(events[-1], InitProcessGroup) else RankState.CREATING_GROUP
            then[rank] = replace(standing[rank], state=state, event=events[-1])
    for rank, one in then.items():  # a rank that was outside when the others timed out is the cause
        if one.state in (RankState.BLOCKED, RankState.UNRESPONSIVE):
            process = replace(one.record.process, wakes_in_s=None)
            then[rank] = replace(one, record=replace(one.record, process=process))
    found_waits = waits(recording, then, 0.0)
    return _blocked(recording, then, found_waits, stuck(found_waits, then, 0.0), 0.0)


def _needed(recording: Recording, missing: MissingRanks, record: RankRecord) -> list[Call]:
    """Of the calls without a recorded end, the first that needs a rank which did not make it.

    Those before it may be complete: DDP waits for them where ddpnb does not see it.
    """
    calls = record.in_flight
    alone = (call for call in calls if any(member in recording.ranks for member in missing.in_call(call, record.rank)))
    first = next(alone, next(iter(calls), None))
    return [] if first is None else [first]


def _blocked(
    recording: Recording,
    standing: Mapping[int, Standing],
    found_waits: Mapping[int, Wait],
    held: frozenset[int],
    patience: float,
) -> list[Stop]:
    """A stop per independent part of the wait-for graph."""
    found: list[Stop] = []
    for part in connected_parts(found_waits, held):
        waiting = tuple(sorted(part & held))
        # Awaited ranks that may still make the call are not at fault.
        gone = tuple(
            rank
            for rank in sorted(part - held)
            if rank not in standing or standing[rank].state is RankState.ENDED or standing[rank].expired(patience)
        )
        found.append(_of_part(recording, Stop(Waits.ANYTHING, Awaited.SILENT, waiting, gone, standing, found_waits)))
    return found


def _of_part(recording: Recording, part: Stop) -> Stop:
    standing, gone = part.standings, [rank for rank in part.gone if rank in part.standings]
    starting, grouping = part.among(RankState.STARTING), part.among(RankState.CREATING_GROUP)
    ended = tuple(rank for rank in gone if standing[rank].state is RankState.ENDED)
    frozen = [rank for rank in gone if standing[rank].state is RankState.UNRESPONSIVE]
    away = tuple(rank for rank in gone if standing[rank].elsewhere or rank in frozen)
    if starting and (wrong := wrong_claims(standing, starting)):
        return replace(part, waits=Waits.START, awaited=Awaited.WRONG_CLAIM, waiting=tuple(starting), gone=wrong)
    if starting and (absent := tuple(rank for rank in part.gone if rank not in standing or standing[rank].absent)):
        return replace(part, waits=Waits.START, awaited=Awaited.ABSENT, waiting=tuple(starting), gone=absent)
    if away:
        awaited = Awaited.UNRESPONSIVE if frozen else Awaited.BLOCKED
        return replace(part, waits=Waits.ANYTHING, awaited=awaited, gone=away)
    if starting and len({address_of(standing[rank].record) for rank in starting}) > 1:
        return replace(part, waits=Waits.START, awaited=Awaited.ELSEWHERE, waiting=tuple(starting))
    if starting and ended:
        return replace(part, waits=Waits.START, awaited=Awaited.ENDED, waiting=tuple(starting), gone=ended)
    if grouping:
        return replace(part, waits=Waits.GROUP, awaited=Awaited.EACH_OTHER)
    return _of_calls(recording, part, ended)


def _of_calls(recording: Recording, part: Stop, ended: tuple[int, ...]) -> Stop:
    """The stop of ranks that wait in calls; as it is where it is not known why they do."""
    calls = part.calls
    p2p = any(call.is_p2p for call in calls.values())
    silent = part.gone and all(endings.is_consequence(recording.ranks[rank]) for rank in ended)
    unknown = not ended and any(rank not in part.standings for rank in part.gone)
    if unknown or (silent and recording.report is not None):
        return replace(part, waits=Waits.POINT_TO_POINT if p2p else Waits.COLLECTIVE)
    awaited = Awaited.ENDED if ended else Awaited.EACH_OTHER
    if p2p:
        return replace(part, waits=Waits.POINT_TO_POINT, awaited=awaited, gone=ended)
    if ended:
        stop = replace(part, waits=Waits.COLLECTIVE, awaited=awaited, waiting=tuple(sorted(calls)), gone=ended)
        call = calls[stop.first]
        members = set(call.group.ranks)
        missing = tuple(rank for rank in ended if rank in members) or ended
        left = from_end(recording, missing, stop.waiting, stop.first, call)
        return replace(stop, gone=missing, left=left)
    if len({call.group.key for call in calls.values()}) < 2:
        return part
    left = from_groups(recording, part.waits_for, calls)
    return replace(part, waits=Waits.COLLECTIVE, awaited=awaited, waiting=tuple(sorted(calls)), left=left)


def _queued(recording: Recording, standing: Mapping[int, Standing], patience: float) -> list[Stop]:
    """A cycle over several groups in the queues of devices, of ranks whose main threads have not moved for so many seconds.

    It is not proven: kernels of several communicators may also run side by side.
    """
    still = [(rank, one) for rank, one in standing.items() if one.reported or one.record.process.still_s >= patience]
    calls = {rank: one.call for rank, one in still if one.call is not None and one.call.seq}
    if len({call.group.key for call in calls.values()}) < 2:
        return []
    found: dict[int, Wait] = {}
    behind: dict[tuple[str, int], frozenset[int]] = {}
    for rank, call in calls.items():
        place = call.group.key, call.seq
        if place not in behind:
            members = (member for member in call.group.ranks if member in calls)
            behind[place] = frozenset(one for one in members if _is_queued(recording, one, calls[one], call))
        found[rank] = Wait(standing[rank], behind[place], behind[place])
    cycle = ranks_in_a_cycle(found, calls)
    return [Stop(Waits.QUEUE, Awaited.EACH_OTHER, tuple(calls), cycle, standing, found)] if cycle else []


def _is_queued(recording: Recording, rank: int, waits_in: Call, other: Call) -> bool:
    """Whether a rank has issued another group's call after the one that it waits in."""
    if waits_in.group.key == other.group.key:
        return False
    call = call_in(recording.ranks[rank], other.group, other.seq)
    return call is not None and call.state is CallState.ISSUED and call.number > waits_in.number


# -- nothing failed, and no rank is proven to be stuck

# All ranks idle and none in a collective is far weaker evidence than a rank that others wait for: a download on
# every rank looks the same. It takes this many times the patience.
_NOBODY_WAITS = 3
# What a rank waits for that is not another machine, in the words of the recorder.
LOCAL = ("a file lock", "a child process", "sleep()")


def _nobody_moves(standing: Mapping[int, Standing], found_waits: Mapping[int, Wait], patience: float) -> list[Stop]:
    opened = {rank: one for rank, one in standing.items() if one.state is not RankState.ENDED}
    ranks = tuple(sorted(opened))
    whole = Stop(Waits.NOTHING, Awaited.SILENT, ranks, (), standing, found_waits)
    if _knock_in_vain(standing, found_waits, patience):
        return [replace(whole, waits=Waits.START, awaited=Awaited.EACH_OTHER)]
    if _stores_apart(standing, opened, patience):
        return [replace(whole, waits=Waits.STORE, awaited=Awaited.EACH_OTHER)]
    if _all_idle(standing, opened, found_waits, patience):
        frozen = any(one.state is RankState.UNRESPONSIVE for one in opened.values())
        return [replace(whole, awaited=Awaited.UNRESPONSIVE if frozen else Awaited.BLOCKED, waiting=(), gone=ranks)]
    return []


def _knock_in_vain(standing: Mapping[int, Standing], found_waits: Mapping[int, Wait], patience: float) -> bool:
    """Whether all ranks are in init_process_group with the same address, and it does not complete."""
    starting = [rank for rank, one in standing.items() if one.state is RankState.STARTING]
    if len(starting) < len(standing) or not starting:
        return False
    came = [event.began_ns for rank in starting if (event := standing[rank].event) is not None]
    needed = max(patience, 3.0, knocks_within((max(came, default=0) - min(came, default=0)) / 1e9))
    return not any(
        found_waits[rank].missing or standing[rank].record.process.still_s < needed
        for rank in starting
        if rank in found_waits
    )


def store_of(one: Standing) -> StoreMade | None:
    """The store that a rank is blocked in making."""
    made = one.record.events(StoreMade, state="open")
    return made[-1] if made and one.state is RankState.BLOCKED else None


def _stores_apart(standing: Mapping[int, Standing], opened: Mapping[int, Standing], patience: float) -> bool:
    """Whether all ranks are blocked creating a store, apparently each its own."""
    if len(opened) < max(2, len(standing)) or any(store_of(one) is None for one in opened.values()):
        return False
    stood = [one.idle_s for one in opened.values()]
    expired = all(one.expired(min(patience, PATIENCE)) for one in opened.values())
    made = [store for one in opened.values() if (store := store_of(one)) is not None]
    apart = len({store.port for store in made}) > 1 and any(store.is_master for store in made)
    if patience == math.inf and not apart:
        return False  # no proof: what they wait for may be a store of another program
    return expired and min(stood) >= knocks_within(max(stood) - min(stood))


def _all_idle(
    standing: Mapping[int, Standing], opened: Mapping[int, Standing], found_waits: Mapping[int, Wait], patience: float
) -> bool:
    """Whether every rank that has not ended is blocked outside any collective, with a group alive or before there was one."""
    if not opened or len(standing) < 2 or found_waits:
        return False
    before = all(before_init(one.record) for one in opened.values())
    alive = before or all(map(_group_alive, opened.values()))
    return alive and all(one.expired(_all_idle_patience(one, before) * patience) for one in opened.values())


def _group_alive(standing: Standing) -> bool:
    record = standing.record
    made = len(record.events(InitProcessGroup, state="done"))
    ended = len(record.events(DestroyProcessGroup, state="done"))
    return made > ended or bool(record.events_forgotten and record.calls and not ended)


def _all_idle_patience(standing: Standing, before_start: bool) -> int:
    """How many times the patience a rank may be idle while all are.

    Before the start-up, a rank that waits for a file lock, a child process that is idle too, or in a loop of sleeps, does
    not wait for another machine: a download that is slow to answer looks different.
    """
    waits_on = standing.record.process.waits_on
    return 1 if before_start and waits_on.startswith(LOCAL) else _NOBODY_WAITS
