"""The process groups of idle ranks, as each rank describes its own: whether they can be used, and what uses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ddpnb.recording.verbs import GroupCounts, Groups

_MOST, _TEXT = 16, 120  # things that use groups, and characters of each

#: the answers of ranks; None of one that does not say it
States = Mapping[int, Groups | None]


def untouched(states: States, size: int) -> bool:
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
    counts = {rank: {one.key: one for one in state.counts} for rank, state in known.items()}
    keys = {key for of_rank in counts.values() for key in of_rank}
    return all(_is_even({rank: of_rank[key] for rank, of_rank in counts.items() if key in of_rank}) for key in keys)


def _is_even(present: Mapping[int, GroupCounts]) -> bool:
    """Whether all members of a group have come equally far in it."""
    members = {member for one in present.values() for member in one.ranks}
    if members != set(present) or len({one.calls for one in present.values()}) != 1:
        return False
    if any(one.returned and min(one.returned) <= one.calls for one in present.values()):  # a number in the midst
        return False
    sent: Counter[tuple[int, int, int]] = Counter()  # from, to, tag
    received: Counter[tuple[int, int, int]] = Counter()
    for rank, one in present.items():
        for name, peer, tag, count in one.messages:
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


def shared_by_all(states: States, size: int) -> ClosedGroup | None:
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
    users = dict.fromkeys(user[:_TEXT] for state in known for user in state.users)
    return ClosedGroup(known[0].backend, timeouts.pop() if len(timeouts) == 1 else None, tuple(users)[:_MOST])
