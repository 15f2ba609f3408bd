"""Which collectives of a long run are re-enacted: the last that all ranks made, and those from where they part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ddpnb.recording.calls import Call, CallState, Group
from ddpnb.studies.reenactment.behaviour import Behaviour, Made, MessageKey

_COMMON = 3  # collectives of a group that all of its ranks completed
_LONGEST_BODY = 8  # collectives of an iteration
_WHOLE = 12  # of a group with no more, all are kept
_OPEN = 8  # sends or receives from one rank to another that are not complete
_APART = 16  # collectives from where the ranks part; of more, only those in which a rank is, or was last


@dataclass(frozen=True)
class Reduced:
    """What remains of each rank's calls, and the new numbers.

    Args:
        made: rank -> its calls, those that follow from others included.
        numbers: group -> number in the recording -> number in the re-enactment.
    """

    made: Mapping[int, tuple[Made, ...]]
    numbers: Mapping[str, Mapping[int, int]]


def reduce(behaviours: Mapping[int, Behaviour]) -> Reduced:
    """Leave out what all ranks completed long ago.

    Args:
        behaviours: of the ranks that are re-enacted.
    """
    groups = {one.group.key: one.group for b in behaviours.values() for one in b.made if one.seq}
    numbers: dict[str, dict[int, int]] = {}
    lasts: dict[str, dict[int, int]] = {}
    calls: dict[str, dict[int, Call]] = {}
    for key, group in groups.items():
        members = [behaviours[rank] for rank in group.ranks if rank in behaviours]
        kept, lasts[key], calls[key] = _of_group(key, members)
        numbers[key] = {seq: place for place, seq in enumerate(kept, 1)}
    messages = _messages(behaviours)
    made = {
        rank: _of_rank(behaviour, groups, numbers, lasts, calls, messages) for rank, behaviour in behaviours.items()
    }
    return Reduced(made, numbers)


def _of_group(key: str, members: Sequence[Behaviour]) -> tuple[list[int], dict[int, int], dict[int, Call]]:
    """The collectives of a group to keep, the last one of each member, and an example of each call."""
    calls: dict[int, Call] = {}
    agreed: dict[int, set[str]] = {}
    for behaviour in members:
        for one in behaviour.made:
            if one.group.key == key and one.seq:
                calls.setdefault(one.seq, one.call)
                agreed.setdefault(one.seq, set()).add(one.call.signature.agreed)
    odd = min((seq for seq, texts in agreed.items() if len(texts) > 1), default=None)
    most = max((behaviour.last.get(key, 0) for behaviour in members), default=0)
    common = min([most, *(behaviour.completed(key) for behaviour in members)])
    if odd is not None:
        common = min(common, odd - 1)
    # A rank of which nothing is known made what the others completed.
    last = {b.rank: b.last.get(key, common if b.completed(key) > most else 0) for b in members}
    kept = list(range(_first(common, calls) if common > _WHOLE else 1, common + 1))
    apart = list(range(common + 1, min(most, common + _APART) + 1))
    if most - common > _APART:
        ends = {common + 1, *last.values()}
        ends |= {one.seq for b in members for one in _open(b, key)} | ({odd} if odd is not None else set())
        apart = sorted(seq for seq in ends if seq > common)
        apart = apart if len(apart) <= _APART else [*apart[: _APART // 2], *apart[-_APART // 2 :]]
    return [seq for seq in (*kept, *apart) if seq in calls], last, calls


def _first(common: int, calls: Mapping[int, Call]) -> int:
    """The first of the last common collectives to keep: at least two iterations of the loop that they are made in."""
    kinds = [(calls[seq].site, calls[seq].op) if seq in calls else None for seq in range(common, 0, -1)]
    for body in range(1, _LONGEST_BODY + 1):
        if len(kinds) < 3 * body or None in kinds[: 3 * body] or kinds[:body] != kinds[body : 2 * body]:
            continue
        if kinds[:body] == kinds[2 * body : 3 * body]:
            lines = [one[0].line if one is not None else 0 for one in kinds[2 * body : 3 * body]]
            start = 3 * body - 1 - lines[::-1].index(min(lines))  # an iteration begins with its first line
            return common - (start if body > 1 else max(_COMMON - 1, 0))
    return common - _COMMON + 1


def _open(behaviour: Behaviour, key: str) -> list[Made]:
    return [one for one in behaviour.made if one.seq and one.group.key == key and not one.completed]


def _messages(behaviours: Mapping[int, Behaviour]) -> set[MessageKey]:
    """The sends and receives to keep: those that a side has not completed; of few calls, also those that both have."""
    sides: dict[MessageKey, list[Made]] = {}
    for behaviour in behaviours.values():
        for one in behaviour.made:
            if one.message is not None:
                sides.setdefault(one.message, []).append(one)
    few = all(len(behaviour.made) <= _WHOLE for behaviour in behaviours.values())
    open_ = [key for key, made in sides.items() if not all(one.completed for one in made) or (few and len(made) == 2)]
    channels: dict[tuple[object, ...], list[MessageKey]] = {}
    for key in sorted(open_):
        channels.setdefault(key[:-1], []).append(key)
    return {key for keys in channels.values() for key in keys[:_OPEN]}


def _of_rank(
    behaviour: Behaviour,
    groups: Mapping[str, Group],
    numbers: Mapping[str, Mapping[int, int]],
    lasts: Mapping[str, Mapping[int, int]],
    calls: Mapping[str, Mapping[int, Call]],
    messages: set[MessageKey],
) -> tuple[Made, ...]:
    rank = behaviour.rank
    own = {(one.group.key, one.seq) for one in behaviour.made if one.seq}
    made: list[Made] = []
    due = {key: [seq for seq in numbers[key] if seq <= of.get(rank, 0)] for key, of in lasts.items() if rank in of}

    def assume(key: str, before: int = 1 << 62) -> None:
        """Add the calls of a group before this number that are not recorded."""
        while due.get(key) and due[key][0] < before:
            seq = due[key].pop(0)
            example = calls[key].get(seq) or next(iter(calls[key].values()), None)
            if (key, seq) not in own and example is not None:
                made.append(Made(replace(example, state=CallState.COMPLETED), groups[key], seq))

    for key in due:  # those of groups of which the rank's own calls are not recorded come first
        if not any(one.seq and one.group.key == key for one in behaviour.made):
            assume(key)
    for one in behaviour.made:
        if one.message is not None:
            if one.message in messages:
                made.append(one)
        elif one.seq in numbers[one.group.key]:
            assume(one.group.key, one.seq)
            made.append(one)
    for key in due:  # those after the last one that is recorded
        assume(key)
    return tuple(made)
