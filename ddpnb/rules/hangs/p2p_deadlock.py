"""DDP307: ranks that wait in sends and receives without a counterpart."""

from __future__ import annotations

from ddpnb.facts.paths.partings import parting
from ddpnb.facts.places import where
from ddpnb.facts.point_to_point import Channels
from ddpnb.facts.standings import Standing
from ddpnb.facts.waits import Wait
from ddpnb.model import phrases
from ddpnb.model.calls import Call, CallState, Site
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording
from ddpnb.rules.hangs.steps_apart import StepsApart, steps_apart

_FEW = 8  # ranks of which the paths are compared

P2P_DEADLOCK = FindingType("DDP307", "p2p-deadlock", separate_calls=True, ways_part=True)


def explain(
    recording: Recording,
    standings: dict[int, Standing],
    waits: dict[int, Wait],
    calls: dict[int, Call],
    ended: list[int],
) -> Finding:
    p2p = {rank: call for rank, call in calls.items() if call.is_p2p}
    places: dict[int, Site] = {}
    rest = sorted(set(calls) - set(p2p))
    peers = sorted({peer for rank in p2p for peer in waits[rank].missing if peer not in p2p and peer in standings})
    evidence = [
        f"Rank {rank} is in {call.title}{phrases.at(standings[rank].site)}." for rank, call in sorted(p2p.items())[:8]
    ]
    short = _short_of(recording, p2p)
    evidence += [
        f"Rank {rank} waits for {'receive' if _sends(call) else 'send'} {call.turn} of rank {call.peer}"
        f"{f' with tag {call.tag}' if call.tag else ''}; rank {call.peer} has made {made}."
        for rank, call, made in short[:8]
    ]
    evidence += [
        f"Rank {rank} is in {phrases.in_call(calls[rank])}{phrases.at(standings[rank].site)}." for rank in rest[:8]
    ]
    evidence += [f"Rank {rank} ended{phrases.at(standings[rank].site)}." for rank in ended[:8]]
    first = p2p[min(p2p)]
    sides: tuple[tuple[int, ...], ...] = ()
    parted: StepsApart | None = None
    strayed: list[int] = []
    if peers:
        culprits, waiting = peers, sorted(set(p2p) | set(rest) - set(peers))
        blamed = set(peers)
        waiting = [rank for rank in waiting if rank not in blamed]
        partner = "receive" if first.op == "send" else "send"
        summary = (
            "; ".join(f"Rank {rank} is blocked in {call.title}" for rank, call in sorted(p2p.items())[:6]) + ", "
            f"but {phrases.ranks(peers)} never {phrases.verb(peers, 'calls', 'call')} the matching {partner}."
        )
        remedy = "Match every receive with a send of the same peer and tag, and every send with a receive."
        dropped = [
            (peer, call)
            for peer in peers
            for call in (recording.ranks[peer].calls if peer in recording.ranks else ())
            if call.state is CallState.DROPPED and call.peer in p2p
        ]
        if dropped:
            peer, call = dropped[-1]
            evidence.append(
                f"Rank {peer} called {call.title}{phrases.at(call.site)}, but discarded its Work, which cancels it."
            )
            summary = f"{phrases.ranks(sorted(p2p), True)} {phrases.verb(set(p2p), 'waits', 'wait')} for a send of rank {peer} whose Work was discarded."
            remedy = "Keep the Work that isend returns, and wait() for it."
            places |= {peer: call.site}
    else:
        parted = steps_apart(recording, p2p)
        culprits = sorted(p2p)
        if parted is not None:
            culprits, sides = list(parted.culprits), () if parted.culprits else parted.sides
            evidence += parted.evidence
        elif strayed := _strayed(recording, p2p):
            culprits = strayed
        elif len(unanswered := _unanswered(recording, p2p)) == 1:
            culprits = unanswered
        elif unanswered:  # a send and a receive, for example, that each have another counterpart in mind
            culprits, sides = [], tuple((rank,) for rank in unanswered)
        waiting = sorted({*p2p, *rest} - {*culprits, *(rank for side in sides for rank in side)})
        summary = (
            f"{phrases.ranks(sorted(p2p), True)} wait for each other in point-to-point calls: "
            + ", ".join(f"{rank} in {call.title}" for rank, call in sorted(p2p.items())[:8])
            + "."
        )
        if parted is not None or any(made for _, _, made in short):  # the same pattern worked before
            remedy = "Make as many sends as receives on each pair of ranks, with the same tags; check the counts of both loops."
        else:
            remedy = (
                "Let one side send while the other receives, or post the send and the receive of a rank together with "
                "batch_isend_irecv; check peers and tags."
            )
    apart = parted.places if parted is not None else ()
    named = [*culprits, *(rank for side in sides for rank in side), *waiting]
    return Finding(
        P2P_DEADLOCK,
        summary,
        tuple(culprits),
        tuple(waiting),
        first,
        tuple(dict.fromkeys((*apart, *((rank, places.get(rank, site)) for rank, site in where(standings, named))))),
        (*evidence, *phrases.undecided(sides)) if sides else tuple(evidence),
        remedy,
        sides=sides,
        certainty="likely" if (parted is not None or strayed) and culprits else "proven",
    )


def _short_of(recording: Recording, p2p: dict[int, Call]) -> list[tuple[int, Call, int]]:
    """The blocked calls that have made fewer counterparts than they need: (rank, its call, how many the peer has made)."""
    channels, found = Channels(recording.ranks), list[tuple[int, Call, int]]()
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
