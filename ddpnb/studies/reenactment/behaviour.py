"""What each rank of a Recording did that others can notice: its calls, the one that it is blocked in, and how it ends."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from ddpnb.recording.calls import OPERATIONS, UNNAMED, Call, CallState, Group, Signature
from ddpnb.recording.collectives import collective_of, message_key
from ddpnb.recording.events.startup import NewGroup
from ddpnb.recording.facts.before_the_end import while_waiting
from ddpnb.recording.facts.endings import is_consequence, is_fence_stop
from ddpnb.recording.facts.standings import Standing, standings
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Recording

How = Literal["blocked", "left", "raised", "died", "elsewhere", "stopped", "computing", "unknown"]
_NOT_MADE = (CallState.HELD, CallState.REFUSED)
_BLOCKING = (CallState.ENTERED, CallState.WAITING, CallState.FENCED)
_ENDLESS = 1 << 40
_MOST_RANKS = 1 << 16

MessageKey = tuple[str, int, int, int, int]  # group, source, target, tag, ordinal


@dataclass(frozen=True, slots=True)
class Made:
    """A call that a rank made. ``seq``: of a collective; ``message``: of a send or receive."""

    call: Call
    group: Group
    seq: int = 0
    message: MessageKey | None = None

    @property
    def completed(self) -> bool:
        return self.call.state is CallState.COMPLETED


@dataclass(frozen=True)
class Behaviour:
    """One rank.

    Args:
        rank: its number in the recording.
        made: its calls, in their order.
        blocked: the place in ``made`` of the call that it is blocked in; None: in none.
        how: what it does after its calls.
        making: the ``new_group`` that it waits in.
        silent: nothing is known of it.
        absent: it never called init_process_group, in which others wait.
        forgotten: its calls before those that are recorded are not known.
    """

    rank: int
    made: tuple[Made, ...] = ()
    blocked: int | None = None
    how: How = "unknown"
    making: NewGroup | None = None
    silent: bool = False
    absent: bool = False
    forgotten: bool = False
    code: int = 0
    message: str = ""
    reached: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def call(self) -> Made | None:
        """The call that it is blocked in."""
        return self.made[self.blocked] if self.blocked is not None else None

    @cached_property
    def last(self) -> dict[str, int]:
        """By group, the number of the last collective that it called."""
        found: dict[str, int] = dict(self.reached)
        for one in self.made:
            if one.seq:
                found[one.group.key] = max(found.get(one.group.key, 0), one.seq)
        return found

    def completed(self, group: str) -> int:
        """The number up to which it has completed the collectives of a group, as far as it limits what others did."""
        open_ = [one.seq for one in self.made if one.seq and one.group.key == group and not one.completed]
        if open_:
            return min(open_) - 1
        if group in self.last:
            return self.last[group]
        return _ENDLESS if self.silent or self.forgotten else 0


def behaviours(recording: Recording) -> dict[int, Behaviour]:
    """What each rank did, also those that the recording does not have."""
    recording = _numbered(while_waiting(recording))
    standing = standings(recording)
    size = min(recording.world_size, _MOST_RANKS)
    known = [rank for rank in recording.ranks if 0 <= rank < _MOST_RANKS]
    everyone = tuple(range(max(size, max(known, default=-1) + 1)))
    found = {rank: Behaviour(rank, silent=True) for rank in everyone}
    for rank in known:
        found[rank] = _behaviour(recording, standing[rank], everyone)
    return found


def _numbered(recording: Recording) -> Recording:
    """The same with what a report leaves open of a call in flight: its number and its operation are those of the others."""
    if recording.report is None:
        return recording
    known: dict[str, Counter[int]] = defaultdict(Counter)
    named: dict[tuple[str, int], Call] = {}
    for _, record in sorted(recording.ranks.items()):
        for call in record.calls:
            if call.seq and call.op != UNNAMED:
                named.setdefault((call.group.key, call.seq), call)
            if call.seq and call.state.in_flight:
                known[call.group.key][call.seq] += 1

    def numbered(call: Call) -> Call:
        numbers = known.get(call.group.key)
        if not call.seq and not call.is_p2p and call.state.in_flight and numbers:
            call = replace(call, seq=numbers.most_common(1)[0][0])
        example = named.get((call.group.key, call.seq))
        return replace(call, signature=example.signature) if call.op == UNNAMED and example is not None else call

    ranks = {rank: replace(one, calls=tuple(map(numbered, one.calls))) for rank, one in recording.ranks.items()}
    return replace(recording, ranks=ranks)


def _behaviour(recording: Recording, standing: Standing, everyone: tuple[int, ...]) -> Behaviour:
    record = standing.record
    made = _made(record.rank, record.calls, everyone)
    ending = record.ending
    blocked = standing.call
    if blocked is None and standing.function in OPERATIONS and not made:  # its stack alone is known
        signature = Signature(standing.function, agreed=standing.function)
        blocked = Call(0, Group(everyone), 1, signature, standing.site, CallState.WAITING)
        made = [Made(blocked, blocked.group, 1)]
    how: How = "unknown"
    if ending is not None:
        fenced = bool(made) and made[-1].call.state is CallState.FENCED
        stopped = is_fence_stop(ending) or is_consequence(record) or fenced
        if ending.how == "raised" and stopped:
            blocked = _stopped_in(made)
        how = "raised" if ending.how == "raised" else "died" if not ending.well else "left"
    elif blocked is None and made and made[-1].call.state in _BLOCKING:
        blocked = made[-1].call
    elif standing.state is RankState.COMPUTING:
        how = "unknown" if record.reported else "computing"  # one stack of a rank does not say what it did afterwards
    elif record.process.activity == "stopped":
        how = "stopped"
    elif standing.elsewhere or standing.state is RankState.UNRESPONSIVE:
        how = "elsewhere"
    place = next((place for place, one in enumerate(made) if one.call is blocked), None)
    if blocked is not None and place is not None:
        how = "blocked"
    joined = any(event.title == "init_process_group" and event.state == "done" for event in record.history)
    reached = record.reached
    silent = not record.mentioned
    starting = standing.state is RankState.STARTING
    making = standing.event if isinstance(standing.event, NewGroup) else None
    if starting or making is not None:
        how = "blocked"
    absent = how != "blocked" and not joined and not made and not silent and _others_start(recording)
    return Behaviour(
        record.rank,
        tuple(made),
        place,
        how,
        making,
        silent,
        absent,
        bool(record.forgotten) or record.detached or recording.report is not None,
        ending.code if ending is not None else 0,
        str(ending) if ending is not None and ending.how == "raised" else "",
        reached,
    )


def _others_start(recording: Recording) -> bool:
    return any(
        event.title == "init_process_group" and event.state == "open"
        for record in recording.ranks.values()
        for event in record.history
    )


def _made(rank: int, calls: tuple[Call, ...], everyone: tuple[int, ...]) -> list[Made]:
    made: list[Made] = []
    counted: dict[str, int] = defaultdict(int)
    turns: dict[tuple[str, int, int, int], int] = defaultdict(int)
    for call in calls:
        if call.state in _NOT_MADE:
            continue
        group = call.group if call.group.ranks else Group(everyone, label=call.group.label)
        if not call.is_p2p:
            counted[group.key] = seq = call.seq or counted[group.key] + 1
            made.append(Made(call, group, seq))
            continue
        key = message_key(call, rank, 0)
        source, target = (rank, call.peer) if call.op == "send" else (call.peer, rank)
        channel = group.key, source, target, call.tag
        turns[channel] += 1
        made.append(Made(call, group, message=(*channel, key[-1] if key is not None else turns[channel])))
    return made


def _stopped_in(made: list[Made]) -> Call | None:
    """The call in which a rank was when a time-out, the fence or a closed connection ended it."""
    stopped = [one.call for one in made if one.call.state in (CallState.FENCED, CallState.FAILED)]
    waiting = [one.call for one in made if one.call.state.in_flight]
    return (stopped or waiting or [None])[0]


def missing(recording: Recording, one: Made, everyone: Mapping[int, Behaviour]) -> frozenset[int]:
    """The ranks without which a call does not complete."""
    if one.message is not None:
        peer = one.call.peer
        return frozenset({peer}) if peer in everyone else frozenset()
    return collective_of(recording, one.call).missing_ranks if one.call.group.ranks else frozenset()
