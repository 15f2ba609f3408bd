"""DDP307: ranks that wait in sends and receives without a counterpart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ddpnb.recording import phrases
from ddpnb.recording.calls import Call, CallState, Site
from ddpnb.recording.facts.paths.partings import parting
from ddpnb.recording.facts.point_to_point import Channels
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stops import Awaited, Stop, Waits
from ddpnb.recording.findings import FindingType
from ddpnb.recording.recording import Recording
from ddpnb.rules.hangs.collective_missing import silent
from ddpnb.rules.hangs.stack_lines import differ_by_stacks
from ddpnb.rules.hangs.table import hang
from ddpnb.rules.rule import Draft, each, in_calls, title

_FEW = 8  # ranks of which the paths are compared
_TAGS = 3  # with which the peer made other calls

P2P_DEADLOCK = FindingType("DDP307", "p2p-deadlock", separate_calls=True, ways_part=True)


@hang(P2P_DEADLOCK, needs=())
def p2p_deadlock(snap: Snapshot, stop: Stop) -> Draft | None:
    """Ranks wait in sends and receives without a counterpart."""
    if stop.waits is Waits.STACK:
        return differ_by_stacks(snap, stop, P2P_DEADLOCK)
    return silent(snap.recording, stop) if stop.awaited is Awaited.SILENT else _of_calls(snap.recording, stop)


@dataclass(frozen=True, slots=True)
class _Blame:
    """Who is at fault, or between which ranks it is open, and what to say of it."""

    summary: str
    remedy: str
    culprits: tuple[int, ...] = ()
    sides: tuple[tuple[int, ...], ...] = ()
    evidence: tuple[str, ...] = ()
    inferred: bool = False
    dropped: Mapping[int, Site] = field(default_factory=dict[int, Site])


def _of_calls(recording: Recording, stop: Stop) -> Draft:
    standings, calls = stop.standings, stop.calls
    p2p = {rank: call for rank, call in sorted(calls.items()) if call.is_p2p}
    rest = sorted(set(calls) - set(p2p))
    peers = tuple(
        sorted({peer for rank in p2p for peer in stop.waits_for[rank].missing if peer not in p2p and peer in standings})
    )
    channels = Channels(recording.ranks)
    short = _short_of(recording, channels, p2p)
    blame = (
        _never_called(recording, p2p, peers) if peers else _each_other(recording, p2p, worked=any(n for *_, n in short))
    )
    open_between = [rank for side in blame.sides for rank in side]
    waiting = tuple(sorted({*p2p, *rest} - {*blame.culprits, *open_between}))
    where = {rank: standings[rank].site for rank in (*blame.culprits, *open_between, *waiting) if rank in standings}
    return Draft(
        blame.summary,
        blame.culprits,
        blame.remedy,
        where | dict(blame.dropped),
        waiting,
        blame.sides,
        (
            *each(p2p, lambda rank: f"Rank {rank} is in {p2p[rank].title}{phrases.at(standings[rank].site)}."),
            *(_waits_for(channels, rank, call, made) for rank, call, made in short[:8]),
            *in_calls({rank: calls[rank] for rank in rest}, standings),
            *each(stop.gone, lambda rank: f"Rank {rank} ended{phrases.at(standings[rank].site)}."),
            *blame.evidence,
        ),
        collective=p2p[min(p2p)],
        certainty="likely" if blame.inferred and blame.culprits else "proven",
    )


def _never_called(recording: Recording, p2p: dict[int, Call], peers: tuple[int, ...]) -> _Blame:
    """Peers that are in no such call: they never made the counterpart, or discarded its Work."""
    dropped = [
        (peer, call)
        for peer in peers
        for call in (recording.ranks[peer].calls if peer in recording.ranks else ())
        if call.state is CallState.DROPPED and call.peer in p2p
    ]
    if dropped:
        peer, call = dropped[-1]
        return _Blame(
            f"{phrases.ranks(p2p, True)} {phrases.verb(set(p2p), 'waits', 'wait')} for a send of rank {peer} whose Work was discarded.",
            "Keep the Work that isend returns, and wait() for it.",
            peers,
            evidence=(
                f"Rank {peer} called {call.title}{phrases.at(call.site)}, but discarded its Work, which cancels it.",
            ),
            dropped={peer: call.site},
        )
    partner = "receive" if p2p[min(p2p)].op == "send" else "send"
    blocked = "; ".join(f"Rank {rank} is blocked in {call.title}" for rank, call in list(p2p.items())[:6])
    never = f"but {phrases.ranks(peers)} never {phrases.verb(peers, 'calls', 'call')} the matching {partner}."
    is_ = phrases.verb(tuple(p2p), "is", "are")
    return _Blame(
        title(f"{blocked}, {never}", f"{phrases.ranks(p2p, True)} {is_} blocked in point-to-point calls, {never}"),
        "Match every receive with a send of the same peer and tag, and every send with a receive.",
        peers,
    )


def _each_other(recording: Recording, p2p: dict[int, Call], *, worked: bool) -> _Blame:
    """Ranks that wait for each other; ``worked``: the same pattern did before."""
    culprits, sides, inferred = tuple(p2p), tuple[tuple[int, ...], ...](), False
    if strayed := _strayed(recording, p2p):
        culprits, inferred = tuple(strayed), True
    elif len(unanswered := _unanswered(recording, p2p)) == 1:
        culprits = tuple(unanswered)
    elif unanswered:  # a send and a receive, for example, that each have another counterpart in mind
        culprits, sides = (), tuple((rank,) for rank in unanswered)
    return _Blame(
        f"{phrases.ranks(p2p, True)} wait for each other in point-to-point calls.",
        "Make as many sends as receives on each pair of ranks, with the same tags; check the counts of both loops."
        if worked
        else "Let one side send while the other receives, or post the send and the receive of a rank together with "
        "batch_isend_irecv; check peers and tags.",
        culprits,
        sides,
        inferred=inferred,
    )


def _waits_for(channels: Channels, rank: int, call: Call, made: int) -> str:
    """What a call needs, and what its peer has made: with this tag, and with others."""
    op = "recv" if _sends(call) else "send"
    unlike = channels.beside(call.peer, op, rank, call)
    tag = f" with tag {call.tag}" if call.tag or any(tag for tag, _ in unlike) else ""
    text = f"Rank {rank} waits for {'receive' if op == 'recv' else 'send'} {call.turn} of rank {call.peer}{tag}"
    others = [
        f"{count} {f'with tag {other}' if other != call.tag else f'in {phrases.group(last.group)}'}{phrases.at(last.site)}"
        for (other, _), (count, last) in list(unlike.items())[:_TAGS]
    ]
    beside = f" of them, but {', '.join(others)}" if others else ""
    return f"{text}; rank {call.peer} has made {made}{beside}."


def _short_of(recording: Recording, channels: Channels, p2p: dict[int, Call]) -> list[tuple[int, Call, int]]:
    """The blocked calls that have made fewer counterparts than they need: (rank, its call, how many the peer has made)."""
    found = list[tuple[int, Call, int]]()
    for rank, call in sorted(p2p.items()):
        if call.turn and call.peer in recording.ranks and call.op != "recv_any_source":
            made = channels.made(call.peer, "recv" if _sends(call) else "send", rank, call, not _sends(call))
            made += channels.made(call.peer, "recv_any_source", -1, call, doubtful=False) if _sends(call) else 0
            if made < call.turn:
                found.append((rank, call, int(made)))
    return found


def _strayed(recording: Recording, p2p: dict[int, Call]) -> list[int]:
    """The ranks, if not all, that left their usual way."""
    ranks = sorted(p2p)
    apart = (parting(recording, (rank,), tuple(other for other in ranks if other != rank)) for rank in ranks[:_FEW])
    known = next((one for one in apart if one is not None), None)
    found = [rank for rank in known.odd if rank in p2p] if known is not None else []
    return found if len(found) < len(p2p) else []


def _unanswered(recording: Recording, p2p: dict[int, Call]) -> list[int]:
    """Ranks in calls whose peers never made a counterpart, where the other ranks' calls had theirs before."""

    def answered(rank: int, call: Call) -> bool:
        peer = recording.ranks.get(call.peer) if call.peer is not None else None
        return peer is not None and any(
            c.is_p2p and c.peer == rank and c.tag == call.tag and _sends(c) != _sends(call) for c in peer.calls
        )

    found = [rank for rank, call in sorted(p2p.items()) if not answered(rank, call)]
    return found if len(found) < len(p2p) else []


def _sends(call: Call) -> bool:
    return "send" in call.op
