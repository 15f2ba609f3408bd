"""The process groups of idle ranks, as each rank describes its own: whether they can be used, and what uses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ddpnb.recording.verbs import GroupCounts, Groups

_MOST = 16  # things that use groups
_GROUPS = 1000
_TEXT = 120


@dataclass(frozen=True, slots=True)
class Counts:
    """How far a rank has come in one group. ``messages``: (operation, peer, tag) -> number; peer -1: any."""

    members: tuple[int, ...]
    calls: int
    returned: bool = False  # a number in the midst of the calls was given back
    messages: Mapping[tuple[str, int, int], int] | None = None


@dataclass(frozen=True, slots=True)
class GroupState:
    """The default group of a rank, and how far each group has come. ``size`` 0: there is none; ``backend`` empty: torch's choice.

    ``users``: what stays with the present groups when there is a new one, as text; ``models``: how many wrapped
    models would use that. ``torn``: an exception ended a backward, or calls are not recorded.
    """

    size: int
    rank: int
    backend: str
    timeout_s: float | None
    closed: bool
    torn: bool
    counts: Mapping[str, Counts]
    users: tuple[str, ...] = ()
    models: int = 0


def read(told: Groups | None) -> GroupState | None:
    """The answer of a rank; None if it is none."""
    if told is None or told.error:
        return None
    try:
        counts = {one.key: _counts(one) for one in told.counts[:_GROUPS]}
    except (TypeError, ValueError):
        return None
    users = tuple(user[:_TEXT] for user in told.users[:_MOST])
    group = told.size, told.rank, told.backend[:_TEXT], told.timeout_s
    return GroupState(*group, told.closed, told.torn, counts, users, told.models)


def _counts(told: GroupCounts) -> Counts:
    messages = {(str(name), int(peer), int(tag)): int(count) for name, peer, tag, count in told.messages}
    return Counts(told.ranks, told.calls, bool(told.returned) and min(told.returned) <= told.calls, messages)


def untouched(states: Mapping[int, GroupState | None], size: int) -> bool:
    """Whether an interrupt has left all groups as they were: each call made by all members, each message received.

    Nothing may be in flight on any rank.

    Args:
        states: of all ranks.
        size: number of ranks.
    """
    known = {rank: state for rank, state in states.items() if state is not None}
    if len(known) != size or any(state.closed or state.torn for state in known.values()):
        return False
    if len({state.size for state in known.values()}) > 1:
        return False
    keys = {key for state in known.values() for key in state.counts}
    return all(_is_even({rank: state.counts.get(key) for rank, state in known.items()}) for key in keys)


def _is_even(of_ranks: Mapping[int, Counts | None]) -> bool:
    """Whether all members of a group have come equally far in it."""
    present = {rank: one for rank, one in of_ranks.items() if one is not None}
    members = {member for one in present.values() for member in one.members}
    if members != set(present) or len({one.calls for one in present.values()}) != 1:
        return False
    if any(one.returned for one in present.values()):
        return False
    sent: Counter[tuple[int, int, int]] = Counter()  # from, to, tag
    received: Counter[tuple[int, int, int]] = Counter()
    for rank, one in present.items():
        for (name, peer, tag), count in (one.messages or {}).items():
            if name == "send":
                sent[rank, peer, tag] += count
            else:
                received[peer, rank, tag] += count
    if any(sender == -1 for sender, _, _ in received):  # of a receive from any rank the sender is not recorded
        return _to(sent) == _to(received)
    return sent == received


def _to(messages: Mapping[tuple[int, int, int], int]) -> Counter[int]:
    """The number of messages to each rank."""
    found: Counter[int] = Counter()
    for (_, to, _), count in messages.items():
        found[to] += count
    return found


@dataclass(frozen=True, slots=True)
class ClosedGroup:
    """A group of all ranks that can no longer be used. ``users``: what must be made again after a new one, as text."""

    backend: str = ""
    timeout_s: float | None = None
    users: tuple[str, ...] = ()


def shared_by_all(states: Mapping[int, GroupState | None], size: int) -> ClosedGroup | None:
    """The group that a new one takes the place of; None if these ranks do not share a group of all ranks.

    Args:
        states: of the ranks, all or those that are left.
        size: number of all ranks.
    """
    known = [state for state in states.values() if state is not None]
    if not known or len(known) != len(states):
        return None
    if any((state.size, state.rank) != (size, rank) for rank, state in states.items() if state is not None):
        return None
    if len({state.backend for state in known}) != 1:
        return None
    timeouts = {state.timeout_s for state in known}
    users = dict.fromkeys(user for state in known for user in state.users)
    return ClosedGroup(known[0].backend, timeouts.pop() if len(timeouts) == 1 else None, tuple(users)[:_MOST])
