"""Planning a re-enactment: from what ranks did in a recording to what a few live ranks call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ddpnb.errors import UsageError
from ddpnb.recording.calls import NO_SITE, CallState, Group
from ddpnb.recording.events.startup import NewGroup
from ddpnb.recording.findings import Finding
from ddpnb.recording.recording import Recording
from ddpnb.recording.source.paths import parting, path_to
from ddpnb.rules.diagnose import diagnose
from ddpnb.rules.hangs.same_collective import SAME_COLLECTIVE
from ddpnb.studies.reenactment.behaviour import Behaviour, Made, behaviours
from ddpnb.studies.reenactment.plan import NEW_GROUP, LiveGroup, Part, Plan, Step
from ddpnb.studies.reenactment.reduction import Reduced, reduce
from ddpnb.studies.reenactment.representatives import chosen, classes, role
from ddpnb.studies.reenactment.tensors import Scale, Small, Tensor, compared_by_size, eager

MOST = 8
_TAGS = (1 << 31) - 1
# What calls, new groups and endings alone show.
_OF_CALLS = frozenset(
    {"DDP102", "DDP108", *(f"DDP{number}" for number in (*range(301, 309), 311, 312, 313, 314, 315, 316))}
)


def plan_of(recording: Recording, most: int = MOST) -> Plan:
    """Plan a re-enactment.

    Args:
        recording: of a hang.
        most: the number of live ranks, at most; a larger job is represented by a few ranks of each kind.

    Raises:
        UsageError: nothing of it can be re-enacted.
    """
    everyone = behaviours(recording)
    if not any(b.made or b.making is not None or b.absent or b.how == "blocked" for b in everyone.values()):
        raise UsageError(
            "this recording has no collective, send, receive or start-up of any rank: there is nothing to re-enact.",
            "Record the ranks while they hang: world.snapshot(), or ddpnb run --save.",
        )
    diagnosis = diagnose(recording)
    finding = next(iter(diagnosis.errors), None)
    ranks = chosen(recording, everyone, finding, most)
    of_class = classes(everyone) if len(everyone) > most else {rank: (rank,) for rank in everyone}
    live = {rank: place for place, rank in enumerate(ranks)}
    reduced = reduce({rank: everyone[rank] for rank in ranks})
    planning = _Planning(recording, len(everyone), reduced, live, {rank: everyone[rank] for rank in ranks})
    parts = tuple(planning.part(everyone[rank], of_class[rank]) for rank in ranks)
    return Plan(
        parts,
        tuple(planning.groups),
        len(everyone),
        diagnosis,
        reduced.numbers,
        _in_sequence(recording, finding, everyone),
        tuple(planning.scale.notes),
        tuple(dict.fromkeys((*planning.left_out, *_beyond_calls(finding)))),
    )


def _beyond_calls(finding: Finding | None) -> tuple[str, ...]:
    """What calls alone cannot show."""
    if finding is None or finding.code in _OF_CALLS:
        return ()
    if finding.type == SAME_COLLECTIVE:
        return ("what blocked a call that all of its ranks made, such as the network or a device.",)
    return (f"the cause of {finding.code} {finding.name}: only calls, new groups and endings of ranks are re-enacted.",)


class _Planning:
    def __init__(
        self,
        recording: Recording,
        size: int,
        reduced: Reduced,
        live: Mapping[int, int],
        everyone: Mapping[int, Behaviour],
    ) -> None:
        self._recording, self._reduced, self._live, self._everyone = recording, reduced, live, everyone
        self.left_out: list[str] = []
        world = Group(tuple(range(size)))
        self.groups = [LiveGroup("", tuple(range(len(live))), world)]
        self._places: dict[str, int] = {}
        made = [one for calls in reduced.made.values() for one in calls]
        self.scale = Scale(made)
        for one in sorted(made, key=lambda one: (len(one.group.ranks) < len(world.ranks), one.group.key)):
            self._place(one.group)
        self._given = self._agreeing()
        self._waiting_sends = {one.message for one in made if one.call.op == "send" and one.call.state.in_flight}
        self._dropped = {one.message for one in made if one.call.state is CallState.DROPPED}
        self._waited_for = {b.making.name for b in everyone.values() if b.making is not None}

    def _place(self, group: Group) -> int:
        if group.key not in self._places:
            members = tuple(self._live[rank] for rank in group.ranks if rank in self._live)
            whole = (
                not group.ordinal
                and set(group.ranks) >= set(self._everyone)
                and (len(group.ranks) >= len(self.groups[0].group.ranks))
            )
            if whole:
                self.groups[0] = replace(self.groups[0], group=group)
                self._places[group.key] = 0
            elif len(members) < 2:
                self._places[group.key] = -1
            else:
                self.groups.append(LiveGroup(f"group_{len(self.groups)}", members, group))
                self._places[group.key] = len(self.groups) - 1
        return self._places[group.key]

    def _agreeing(self) -> dict[tuple[str, int, str], Small]:
        """For each side of a collective the tensors that all its ranks give: those of its first rank."""
        found: dict[tuple[str, int, str], Small] = {}
        sides: dict[tuple[str, int], list[Small]] = {}
        for calls in self._reduced.made.values():
            for one in calls:
                place = one.group.key, one.seq, one.call.signature.agreed
                if not one.seq or place in found:
                    continue
                given = self.scale.small(one.call, self._members(one.group))
                others = sides.setdefault(place[:2], [])
                if given in others and not given.in_splits:
                    given = replace(given, tensor=Tensor(given.tensor.elements + len(others), given.tensor.dtype))
                    self.scale.notes.append(
                        f"The calls of {one.call.title} differ in what the recording does not say: here in their sizes."
                    )
                others.append(given)
                found[place] = given
        return found

    def _members(self, group: Group) -> list[int]:
        return [place for place, rank in enumerate(group.ranks) if rank in self._live]

    def part(self, behaviour: Behaviour, stands_for: tuple[int, ...]) -> Part:
        """What the live rank of this one does."""
        made = self._reduced.made[behaviour.rank]
        blocked = behaviour.call
        steps: list[Step] = []
        waits_in: int | None = None
        threads = {one.call.thread for one in made if not one.completed}
        if len(threads) > 1:
            self.left_out.append(
                f"the threads of rank {behaviour.rank} that have calls in flight: here one makes them."
            )
        for place, one in enumerate(made):
            is_last = place == len(made) - 1
            stands = one is blocked
            mode = "call" if one.completed or (stands and is_last) else "issue"
            mode = "call" if stands and all(later.completed for later in made[place + 1 :]) else mode
            mode = "drop" if one.call.state is CallState.DROPPED else mode
            step = self._step(one, behaviour, mode)
            if step is None:
                continue
            if stands:
                waits_in = len(steps)
            steps.append(step)
            if stands and mode == "call":
                break
        how = behaviour.how
        for place, event in enumerate(self._groups_of(behaviour)):
            steps.insert(place + self._earlier(made, event), self._new_group(behaviour, event))
        if how == "blocked" and not steps and blocked is not None:
            how = "unknown"
        return Part(
            self._live[behaviour.rank],
            behaviour.rank,
            stands_for,
            tuple(steps),
            how,
            waits_in,
            behaviour.code,
            behaviour.message,
            behaviour.absent,
        )

    def _groups_of(self, behaviour: Behaviour) -> list[NewGroup]:
        """The calls of new_group in which ranks wait for each other, or for this one."""
        record = self._recording.ranks.get(behaviour.rank)
        events = record.events(NewGroup) if record is not None else []
        return [event for event in events if event.name in self._waited_for]

    @staticmethod
    def _earlier(made: Sequence[Made], event: NewGroup) -> int:
        """How many calls a rank had begun before an event."""
        return sum(one.call.entered_ns < event.began_ns for one in made)

    def _new_group(self, behaviour: Behaviour, made: NewGroup) -> Step:
        ranks = tuple(self._live[rank] for rank in made.ranks if rank in self._live)
        kind = (made.site.file, made.site.line, NEW_GROUP)
        return Step(None, -1, ranks=ranks or (self._live[behaviour.rank],), site=made.site, title=NEW_GROUP, kind=kind)

    def _step(self, one: Made, behaviour: Behaviour, mode: str) -> Step | None:
        call, group = one.call, self._place(one.group)
        if group < 0:
            if one is behaviour.call:
                self.left_out.append(f"{call.title} of {one.group}, whose other members are not among the live ranks.")
            return None
        site = call.site
        kind = (site.file, site.line, call.op) if site != NO_SITE else ("", 0, f"{call.op} {role(one.group)}")
        title = f"{call.title} of {one.group}"
        if one.message is not None:
            peer = self._live.get(call.peer, -1)
            if peer < 0 and call.op != "recv_any_source":
                self.left_out.append(f"{call.title} of rank {behaviour.rank}, whose peer is not among the live ranks.")
                return None
            given = self.scale.small(call, ())
            given = replace(given, tensor=self._of_message(one))
            late = one.message in self._dropped and call.op != "send"
            return Step(given, group, 0, mode, late, peer, call.tag & _TAGS, site=site, title=title, kind=kind)
        given = self._given[one.group.key, one.seq, call.signature.agreed]
        if not compared_by_size(given.op):
            given = self.scale.small(call, self._members(one.group))
        seq = self._reduced.numbers[one.group.key][one.seq]
        root = self._root(one, given)
        return Step(given, group, seq, mode, root=root, site=site, title=title, kind=kind)

    def _root(self, one: Made, given: Small) -> int | None:
        """The live rank of the root: where it is not re-enacted, the first live member."""
        if given.op not in ("broadcast", "reduce", "gather", "scatter"):
            return None
        ranks = one.group.ranks
        if given.root is not None and 0 <= given.root < len(ranks) and ranks[given.root] in self._live:
            return self._live[ranks[given.root]]
        return self.groups[self._place(one.group)].ranks[0]

    def _of_message(self, one: Made) -> Tensor:
        """Both sides of a message have one size; a send that waits is large: gloo completes a small one at once."""
        sides = [
            other
            for calls in self._reduced.made.values()
            for other in calls
            if other.message is not None and other.message[:4] == (one.message or ())[:4]
        ]
        first = min(sides, key=lambda other: (other.call.op != "send", other.message))
        tensor = self.scale.small(first.call, ()).tensor
        return eager(tensor) if any(side.message in self._waiting_sends for side in sides) else tensor


def _in_sequence(recording: Recording, finding: Finding | None, everyone: Mapping[int, Behaviour]) -> bool:
    """Whether the source says that the two calls which do not match follow each other."""
    if finding is None:
        return False
    sides: Sequence[Sequence[int]] = finding.sides or (finding.culprits, finding.waiting)
    if len(sides) < 2 or not all(sides):
        return False
    pair = [(recording.ranks.get(side[0]), everyone[side[0]].call) for side in sides[:2] if side[0] in everyone]
    paths = [path_to(record, one.call) for record, one in pair if record is not None and one is not None]
    return len(paths) == 2 and parting(recording, *paths).relation == "sequence"
