"""The wait-for graph: who waits for whom, and who can never go on.

A deadlock is proven, not timed: a rank that waits is *live* as long as all that it certainly needs
are live; what is left over when nothing more can be made live is stuck, for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ddpnb.analysis.waiting.standing import Kind, Standing
from ddpnb.model.calls import Call, CallState
from ddpnb.model.recording import Phase, RankRecord, Recording

_FROM_ROOT = frozenset({"broadcast", "scatter"})
_TO_ROOT = frozenset({"gather", "reduce"})


@dataclass(frozen=True, slots=True)
class Wait:
    """What one rank waits for: the ranks that are ``missing``, of which it needs ``certain`` ones.

    The others it may need, depending on the backend's algorithm: a leaf of a broadcast needs the
    root for certain and its siblings perhaps.
    """

    standing: Standing
    missing: frozenset[int]
    certain: frozenset[int]
    finite: bool = False  # an explicit wait(timeout): it comes back by itself


def waits(recording: Recording, standings: dict[int, Standing], patience: float) -> dict[int, Wait]:
    """The wait of every rank that waits for other ranks."""
    found: dict[int, Wait] = {}
    for rank, standing in standings.items():
        if standing.call is not None:
            found[rank] = _wait_in_call(recording, standings, standing, standing.call, patience)
        elif standing.kind is Kind.START:
            found[rank] = _wait_at_start(recording, standing)
        elif standing.kind is Kind.NEW_GROUP:
            found[rank] = _wait_for_group(recording, standing)
    return found


def stuck(found: dict[int, Wait], standings: dict[int, Standing], patience: float) -> frozenset[int]:
    """The waiting ranks that can never go on.

    Ranks that compute, or that have been elsewhere or frozen for less than ``patience`` seconds,
    may come; ended ranks never will.
    """
    live = {
        rank
        for rank, standing in standings.items()
        if rank not in found and standing.kind is not Kind.ENDED and not standing.expired(patience)
    }
    changed = True
    while changed:
        changed = False
        for rank, wait in found.items():
            if rank in live:
                continue
            possible = wait.missing - wait.certain
            may_come = wait.certain <= live and (not possible or bool(wait.certain) or bool(possible & live))
            if not wait.missing or wait.finite or may_come:
                live.add(rank)
                changed = True
    return frozenset(found) - live


def arrived(record: RankRecord | None, call: Call) -> bool:
    """Whether this rank has handed the same collective of the group to its backend."""
    if record is None:
        return False
    for other in reversed(record.calls):
        if other.seq and other.group.key == call.group.key:
            if other.seq == call.seq:
                return other.state.seen_by_peers
            if other.seq < call.seq:
                return False
            if not any(c.seq == call.seq and c.group.key == call.group.key for c in record.calls):
                return True  # later ones are in the ring and this one has left it
    return record.forgotten > 0  # it may lie further back than what is recorded: the benefit of the doubt


def _wait_in_call(
    recording: Recording, standings: dict[int, Standing], standing: Standing, call: Call, patience: float
) -> Wait:
    rank = standing.rank
    finite = call.timeout_ms > 0
    if call.is_p2p:
        return _wait_in_p2p(recording, standing, call, patience)
    others = [member for member in call.group.ranks if member != rank]
    missing = frozenset(
        m for m in others if not arrived(recording.ranks.get(m), call) or _stopped_inside(standings.get(m), call)
    )
    root = call.signature.root
    root_rank = call.group.ranks[root] if root is not None and 0 <= root < len(call.group.ranks) else None
    certain = missing
    if call.op in _FROM_ROOT:
        certain = missing & {root_rank} if root_rank is not None else missing
    elif call.op in _TO_ROOT and rank != root_rank:
        certain = frozenset()
    return Wait(standing, missing, certain, finite)  # type: ignore[arg-type]


def _stopped_inside(standing: Standing | None, call: Call) -> bool:
    """Whether a rank was stopped within this collective: its threads take no part in it."""
    return (
        standing is not None
        and standing.record.process.activity == "stopped"
        and any(c.seq == call.seq and c.group.key == call.group.key for c in standing.record.in_flight)
    )


def _wait_in_p2p(recording: Recording, standing: Standing, call: Call, patience: float) -> Wait:
    me, finite = standing.rank, call.timeout_ms > 0
    # A send whose Work was thrown away may have arrived or not: patience decides.
    doubtful = standing.idle_s < patience
    others = frozenset(member for member in call.group.ranks if member != me)
    mine = recording.ranks[me]
    # Sends to me that no finished receive of mine has taken; from whom a receive from any took is
    # not recorded.
    sent = sum(_made(recording.ranks.get(other), "send", me, call, doubtful) for other in others)
    received = sum(
        c.op in ("recv", "recv_any_source") and c.state is CallState.COMPLETED and _same_tag(c, call)
        for c in mine.calls
    )
    left = sent - received if not mine.forgotten else sent
    if call.op == "recv_any_source":
        return Wait(standing, frozenset() if left > 0 else others, frozenset(), finite)
    place = call.turn or sum(1 for c in mine.calls if c.number <= call.number and _same_channel(c, call))
    record = recording.ranks.get(call.peer)
    if call.op == "recv":
        matched = left > 0 and _made(record, "send", me, call, doubtful) >= place
    else:
        matched = _made(record, "recv", me, call) + _made(record, "recv_any_source", -1, call) >= place
    missing = frozenset() if matched else frozenset({call.peer})
    return Wait(standing, missing, missing, finite)


def _same_tag(one: Call, other: Call) -> bool:
    return one.tag == other.tag and one.group.key == other.group.key


def _same_channel(one: Call, other: Call) -> bool:
    return (one.op, one.peer) == (other.op, other.peer) and _same_tag(one, other)


def _made(record: RankRecord | None, op: str, peer: int, call: Call, dropped: bool = True) -> float:
    """How many calls ``op`` with ``peer`` this rank has made in all, on the group and tag of ``call``.

    Infinite when none is recorded but older calls are forgotten: it cannot be known, so nobody is
    said to wait in vain.
    """
    if record is None:
        return 0
    channel = [c for c in record.calls if (c.op, c.peer) == (op, peer) and _same_tag(c, call) and c.state.seen_by_peers]
    if not channel and record.forgotten:
        return math.inf
    lost = 0 if dropped else sum(c.state is CallState.DROPPED for c in channel)
    return max((c.turn for c in channel), default=0) - lost if channel and channel[-1].turn else len(channel) - lost


def _wait_at_start(recording: Recording, standing: Standing) -> Wait:
    """A rank in init_process_group waits until every rank of its world is claimed by a process that came there."""
    phase = standing.phase
    assert phase is not None
    size = min(as_int(phase.facts.get("world_size")) or recording.world_size, 1 << 16)
    turn = _turns(standing.record, "init_process_group")
    here = {
        other
        for other, record in recording.ranks.items()
        if other == standing.rank or _came_to_start(record, turn, address_of(standing.record))
    }
    claims = {other: claim_of(recording.ranks[other]) for other in here}
    if set(range(size)) <= set(claims.values()):
        return Wait(standing, frozenset(), frozenset())
    owner: dict[int, int] = {}
    for other in sorted(claims):
        owner.setdefault(claims[other], other)
    wrong = {o for o in here if not 0 <= claims[o] < size or owner[claims[o]] != o}
    absent = {o for o in recording.ranks if o not in here and o < size}
    beyond = {o for o in range(size) if o not in recording.ranks}
    missing = frozenset((wrong | absent | beyond) - {standing.rank})
    # A process that claims what is not its own waits for nobody else but itself to be right.
    return Wait(standing, missing or frozenset({standing.rank}), missing or frozenset({standing.rank}))


def _came_to_start(record: RankRecord, turn: int, address: str) -> bool:
    phases = [phase for phase in record.phases if phase.name == "init_process_group"]
    if len(phases) < turn or address_of(record) != address:
        return False
    state = phases[turn - 1].state
    # One that went through it and has ended did so without the others (another backend).
    return state == "open" or (state == "done" and record.ending is None)


def claim_of(record: RankRecord) -> int:
    """The rank that a process claimed at its last init_process_group; its own when that is not known."""
    phases = [phase for phase in record.phases if phase.name == "init_process_group"]
    claimed = as_int(phases[-1].facts.get("rank")) if phases else None
    return record.rank if claimed is None else claimed


def _wait_for_group(recording: Recording, standing: Standing) -> Wait:
    """A rank in new_group waits for the members that have not come to the same new_group."""
    phase = standing.phase
    assert phase is not None
    missing = frozenset(
        member
        for member in members_of(phase)
        if member != standing.rank and not _came_to(recording.ranks.get(member), standing.record, phase)
    )
    # Torch counts all groups in their names: other lists under the name of mine never meet it.
    name = phase.facts.get("name")
    if name and not phase.facts.get("local"):
        missing |= frozenset(
            other
            for other, record in recording.ranks.items()
            for p in record.phases
            if p.name == "new_group"
            and not p.facts.get("local")
            and p.facts.get("name") == name
            and members_of(p) != members_of(phase)
        )
    return Wait(standing, missing, missing)


def _came_to(record: RankRecord | None, mine: RankRecord, phase: Phase) -> bool:
    """Torch pairs the ranks of a new group by its members and its name, which counts all groups."""
    if record is None:
        return False

    def alike(p: Phase) -> bool:
        return p.name == "new_group" and p.facts.get("ranks") == phase.facts.get("ranks")

    if phase.facts.get("local"):  # named by its members alone
        return sum(map(alike, record.phases)) >= sum(map(alike, mine.phases))
    return any(alike(p) and p.facts.get("name") == phase.facts.get("name") for p in record.phases)


def _turns(record: RankRecord, name: str) -> int:
    return sum(1 for phase in record.phases if phase.name == name)


def address_of(record: RankRecord) -> str:
    """Where this rank looks for the others, at its last init_process_group."""
    phases = [phase for phase in record.phases if phase.name == "init_process_group"]
    return str(phases[-1].facts.get("address", "")) if phases else ""


def members_of(phase: Phase) -> list[int]:
    """The ranks that a new_group was asked for; empty when what was recorded makes no sense."""
    ranks = phase.facts.get("ranks")
    found = [as_int(rank) for rank in ranks] if isinstance(ranks, (list, tuple)) else []
    return [rank for rank in found if rank is not None]


def as_int(value: object) -> int | None:
    try:
        return int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
