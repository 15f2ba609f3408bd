"""Sends and receives by optimizer step: the first step in which neighbours did not make as many."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ddpnb.model import phrases
from ddpnb.model.calls import Call, Site
from ddpnb.model.recording import RankRecord, Recording

_EVEN = 2  # steps; stages that step their optimizers at different times are never even for long
_MOST = 8  # differences in the evidence


@dataclass(frozen=True, slots=True)
class StepsApart:
    """A step in which ranks made sends or receives without a counterpart, after steps in which all had theirs.

    ``sides``: ranks that made as many as their neighbours in this step, the largest side first; ``places``: (rank, line) of
    the first calls without a counterpart.
    """

    sides: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, Site], ...]
    evidence: tuple[str, ...]

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks that differ from more than half of them; none in a tie."""
        most, *rest = self.sides
        fewer = sorted(rank for side in rest for rank in side)
        return tuple(fewer) if len(most) > len(fewer) else ()


def steps_apart(recording: Recording, ranks: Iterable[int]) -> StepsApart | None:
    """The first step in which these ranks part; None where no step before was even, or where it does not separate them.

    A pipeline whose stages count micro-batches differently continues for a while after that: later sends meet the receives
    that were left over.
    """
    by_step = {rank: _by_step(recording.ranks[rank]) for rank in sorted(ranks) if rank in recording.ranks}
    channels = sorted(
        {
            (rank, call.peer, call.group.key) if call.op == "send" else (call.peer, rank, call.group.key)
            for rank, steps in by_step.items()
            for calls in steps.values()
            for call in calls
            if call.peer in by_step
        }
    )
    begin = max(min(steps, default=0) for steps in by_step.values())  # of some ranks, those before may be forgotten
    even: Counter[tuple[int, int, str]] = Counter()  # in how many steps
    for step in range(begin, max(record.steps for record in recording.ranks.values()) + 1):
        apart: list[_Uneven] = []
        for sender, receiver, group in channels:
            sends, receives = (
                [c for c in by_step[rank].get(step, ()) if (c.op, c.peer, c.group.key) == (op, peer, group)]
                for rank, op, peer in ((sender, "send", receiver), (receiver, "recv", sender))
            )
            short, made = (sender, receives) if len(sends) < len(receives) else (receiver, sends)
            if len(sends) == len(receives):
                even[sender, receiver, group] += bool(sends)
            elif recording.ranks[short].steps > step:  # it made no more of them in this step
                apart.append(_Uneven(sender, receiver, len(sends), len(receives), made[min(len(sends), len(receives))]))
                if even[sender, receiver, group] < _EVEN:
                    return None
        if apart:
            return _parted(step, apart, list(by_step), [(sender, receiver) for sender, receiver, _ in channels])
    return None


@dataclass(frozen=True, slots=True)
class _Uneven:
    """Sends of one rank to another in one step that were not as many as that one's receives."""

    sender: int
    receiver: int
    sent: int
    received: int
    first: Call  # that has no counterpart

    @property
    def more(self) -> int:
        """The rank that made the calls without a counterpart."""
        return self.sender if self.sent > self.received else self.receiver

    def evidence(self, step: int) -> str:
        sends, receives = (
            f"{self.sent} send{'s' * (self.sent != 1)}",
            f"{self.received} receive{'s' * (self.received != 1)}",
        )
        ways = [(self.sender, f"{sends} to"), (self.receiver, f"{receives} from")]
        (more, made), (less, fewer) = ways if self.more == self.sender else ways[::-1]
        return (
            f"In optimizer step {step + 1}, rank {more} made {made} rank {less} (the first without a counterpart"
            f"{phrases.at(self.first.site)}), but rank {less} made {fewer} rank {more}; before, as many in each step."
        )


def _parted(step: int, apart: list[_Uneven], ranks: list[int], pairs: list[tuple[int, int]]) -> StepsApart | None:
    uneven = {frozenset((one.sender, one.receiver)) for one in apart}
    side = {rank: {rank} for rank in ranks}
    for pair in pairs:
        if frozenset(pair) not in uneven and side[pair[0]] is not side[pair[1]]:
            joined = side[pair[0]] | side[pair[1]]
            side |= dict.fromkeys(joined, joined)
    sides = sorted({tuple(sorted(members)) for members in side.values()}, key=lambda those: (-len(those), those))
    if len(sides) < 2 or any(side[one.sender] is side[one.receiver] for one in apart):
        return None
    return StepsApart(
        tuple(sides),
        tuple(dict.fromkeys((one.more, one.first.site) for one in apart)),
        tuple(one.evidence(step) for one in apart[:_MOST]),
    )


def _by_step(record: RankRecord) -> dict[int, list[Call]]:
    """The sends and receives of a rank by the optimizer steps before them, without a step of which some are forgotten."""
    steps = [mark for mark in record.marks if mark.kind in ("begin", "step")]
    times = [mark.at_ns for mark in steps]
    found: dict[int, list[Call]] = defaultdict(list)
    for call in record.calls:
        before = bisect_right(times, call.entered_ns)
        if before and call.op in ("send", "recv"):
            found[steps[before - 1].steps].append(call)
    if record.forgotten and record.calls:
        first = bisect_right(times, record.calls[0].entered_ns)
        found.pop(steps[first - 1].steps if first else 0, None)
    return dict(found)
