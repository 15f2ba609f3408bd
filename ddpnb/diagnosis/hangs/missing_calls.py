"""Ranks that are blocked forever: the causes that the wait-for graph can prove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from ddpnb.diagnosis import hints
from ddpnb.diagnosis.hangs import blocked, startup
from ddpnb.diagnosis.hangs.call_order import may_come_again
from ddpnb.diagnosis.hangs.cycles import connected_parts, ranks_in_a_cycle
from ddpnb.diagnosis.hangs.init_facts import address_of
from ddpnb.diagnosis.hangs.rank_state import Standing
from ddpnb.diagnosis.hangs.skipped_call import COLLECTIVE_MISSING
from ddpnb.diagnosis.hangs.uneven_iterations import fewer_batches, uneven_iterations
from ddpnb.diagnosis.hangs.wait_for_graph import Wait
from ddpnb.diagnosis.places import where
from ddpnb.model import phrases
from ddpnb.model.calls import Call, CallState, Site
from ddpnb.model.findings import Finding, FindingType, Hint
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.source.loops import every_iteration, loop_around, loop_header
from ddpnb.source.paths import parting, path_to

GROUP_ORDER = FindingType("DDP306", "group-order", separate_calls=True)
P2P_DEADLOCK = FindingType("DDP307", "p2p-deadlock", separate_calls=True)


def find(
    recording: Recording,
    standings: dict[int, Standing],
    waits: dict[int, Wait],
    stuck: frozenset[int],
    patience: float,
) -> list[Finding]:
    """One finding per independent part of the wait-for graph."""
    found = []
    for part in connected_parts(waits, stuck):
        waiting = sorted(part & stuck)
        # Awaited ranks that may still make the call are not at fault.
        gone = [
            rank
            for rank in sorted(part - stuck)
            if rank not in standings or standings[rank].state is RankState.ENDED or standings[rank].expired(patience)
        ]
        finding = _explain(recording, standings, waits, waiting, gone)
        if finding is not None:
            found.append(finding)
    return found


def _explain(
    recording: Recording,
    standings: dict[int, Standing],
    waits: dict[int, Wait],
    waiting: list[int],
    gone: list[int],
) -> Finding | None:
    present = [rank for rank in gone if rank in standings]
    starting = [rank for rank in waiting if standings[rank].state is RankState.STARTING]
    claims = startup.wrong_claims(standings, starting) if starting else None
    if claims is not None:
        return claims
    if starting and (absent := [rank for rank in gone if rank not in standings]):
        return startup.world_too_large(standings, starting, absent)
    elsewhere = [rank for rank in present if standings[rank].state in (RankState.BLOCKED, RankState.UNRESPONSIVE)]
    if elsewhere:
        return blocked.explain(standings, waiting, elsewhere)
    ended = [rank for rank in present if standings[rank].state is RankState.ENDED]
    if starting and len({address_of(standings[rank].record) for rank in starting}) > 1:
        return startup.apart(standings, starting)
    if starting and ended:
        return startup.never_joined(recording, standings, starting, ended)
    grouping = [rank for rank in waiting if standings[rank].state is RankState.CREATING_GROUP]
    if grouping:
        return startup.group_not_made(recording, standings, waits, grouping, waiting)
    calls = {rank: call for rank in waiting if (call := standings[rank].call) is not None}
    if any(call.is_p2p for call in calls.values()):
        return _p2p(recording, standings, waits, calls, ended)
    if ended:
        return _left(recording, standings, calls, ended)
    return _crossed(recording, standings, waits, calls)


# -- the causes, one function each


def _p2p(
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
    evidence += [
        f"Rank {rank} is in {phrases.in_call(calls[rank])}{phrases.at(standings[rank].site)}." for rank in rest[:8]
    ]
    evidence += [f"Rank {rank} ended{phrases.at(standings[rank].site)}." for rank in ended[:8]]
    first = p2p[min(p2p)]
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
        culprits = _unanswered(recording, p2p) or sorted(p2p)
        waiting = sorted({*p2p, *rest} - set(culprits))
        summary = (
            f"{phrases.ranks(sorted(p2p), True)} wait for each other in point-to-point calls: "
            + ", ".join(f"{rank} in {call.title}" for rank, call in sorted(p2p.items())[:8])
            + "."
        )
        remedy = "Send on one side while the other receives, or post all with batch_isend_irecv; check peers and tags."
    return Finding(
        P2P_DEADLOCK,
        summary,
        tuple(culprits),
        tuple(waiting),
        first,
        tuple((rank, places.get(rank, site)) for rank, site in where(standings, [*culprits, *waiting])),
        tuple(evidence),
        remedy,
    )


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


def _left(recording: Recording, standings: dict[int, Standing], calls: dict[int, Call], ended: list[int]) -> Finding:
    """Ranks that finished while others wait for them: a shorter loop, or a missing call."""
    waiting = sorted(calls)
    groups = {call.group.key: set(call.group.ranks) for call in calls.values()}
    without = {key for key, members in groups.items() if not members.isdisjoint(ended)}
    first = next((rank for rank in waiting if calls[rank].group.key in without), waiting[0])
    call = calls[first]
    missing = [rank for rank in ended if rank in groups[call.group.key]] or ended
    been = {rank: _calls_like(recording.ranks[rank], call) for rank in missing}
    places = where(standings, [*missing, *waiting])
    evidence = [
        f"{phrases.ranks(waiting, True)} {phrases.verb(waiting, 'is', 'are')} in {phrases.in_call(call)}{phrases.at(standings[first].site)}.",
        *(_ended_after(recording.ranks[rank], call, been[rank]) for rank in missing[:8]),
    ]
    finished = all((ending := recording.ranks[rank].ending) is not None and ending.well for rank in missing)
    how = "finished" if finished else "ended"
    path = path_to(recording.ranks[first], call)
    if all(been.values()) and _in_loop(recording, first, call, path, missing):
        header = loop_header(recording.sources, path)
        counted = fewer_batches(recording, missing)
        hint = None
        if header is not None:
            file, line, text = header
            hint = Hint(file, line, f"{text} sets the number of iterations")
        elif not counted:
            hint = Hint(
                call.site.file,
                call.site.line,
                "every iteration of a loop reaches this line, so the loop may have ended earlier",
            )
        what = f"{how} after {_counts(recording, been)} at {call.site}"
        finding = uneven_iterations(tuple(missing), tuple(waiting), what, call, places, evidence)
        # Several calls at one line were counted: that they are iterations needs no look at the source.
        repeated = min(been.values()) > 1
        return replace(finding, certainty="proven" if counted or repeated else "likely", hint=hint)
    return Finding(
        COLLECTIVE_MISSING,
        f"{phrases.ranks(missing, True)} never {phrases.verb(missing, 'calls', 'call')} the {call.op} that "
        f"{phrases.ranks(waiting)} {phrases.verb(waiting, 'is', 'are')} blocked in{phrases.at(standings[first].site)}: "
        f"{phrases.verb(missing, 'it', 'they')} {how}.",
        tuple(missing),
        tuple(waiting),
        call,
        places,
        tuple(evidence),
        "Call it on all ranks or on none: move it out of the condition, or end all ranks together.",
        hint=hints.deciding_branch(recording, path, ended=True),
    )


def _calls_like(record: RankRecord, call: Call) -> int:
    """How many calls a rank has made from the line of a call, in its group."""
    return sum(1 for c in record.calls if c.site == call.site and c.group.key == call.group.key)


def _counts(recording: Recording, been: Mapping[int, int]) -> str:
    """How many calls each rank made from one line."""
    words = {rank: phrases.calls(recording.ranks[rank], count) for rank, count in been.items()}
    sides = [[rank for rank in words if words[rank] == text] for text in dict.fromkeys(words.values())]
    return words[sides[0][0]] if len(sides) == 1 else f"{phrases.by_side(sides, words.__getitem__)},"


def _ended_after(record: RankRecord, call: Call, been: int) -> str:
    """How many collectives of the group a rank called before it ended, ``been`` of them at the line of ``call``."""
    text = f"Rank {record.rank} {phrases.ended(record.ending)}"
    made = [c for c in record.calls if c.group.key == call.group.key and c.seq]
    if not record.forgotten:
        lines = f", {been} of them at that line" if made else ""
        return f"{text} after {len(made)} collective{'s' * (len(made) != 1)} in this group{lines}."
    lines = f", at least {been} of them at that line" if been else ""  # none among the recorded calls: no number
    return f"{text} after {made[-1].title} of this group{lines}." if made else f"{text}."  # its number is exact


def _in_loop(recording: Recording, rank: int, call: Call, path: tuple[Site, ...], missing: list[int]) -> bool:
    """Whether ranks that are missing in a call made fewer iterations of its loop, and did not just leave the call out.

    Their loaders counted fewer batches; or every iteration comes to that line, and the forwards that were counted
    do not say that the missing ranks began as many.

    Args:
        recording: what is known.
        rank: a rank that waits in the call.
        call: the call.
        path: the lines by which the rank came there.
        missing: the ranks that have ended, each after some calls from that line.
    """
    if not any(loop_around(recording.sources.get(site.file, ""), site.line) for site in path):
        return False
    if fewer_batches(recording, missing):
        return True
    if _began_as_many(recording, rank, call, missing):
        return False
    return every_iteration(recording.sources, path)


def _began_as_many(recording: Recording, rank: int, call: Call, missing: list[int]) -> bool:
    """Whether the missing ranks ran as many forwards as the one that waits, which ran one for each call from that line.

    A rank that waits in a broadcast within forward has not counted that forward: it has made more calls than forwards.
    """
    record = recording.ranks[rank]
    if record.forgotten or not record.forwards >= _calls_like(record, call):
        return False
    return all(recording.ranks[other].forwards >= record.forwards for other in missing)


def _crossed(
    recording: Recording, standings: dict[int, Standing], waits: dict[int, Wait], calls: dict[int, Call]
) -> Finding | None:
    """A cycle over several groups: each waits in one for a rank that waits in another."""
    if len({call.group.key for call in calls.values()}) < 2:
        return None
    skipped = _left_out(recording, waits, calls) or _skipped_in_cycle(recording, waits, calls)
    # From another branch it may still reach the call: only the cycle was observed.
    if skipped is not None and not _in_another_branch(recording, calls, *skipped):
        culprit, rank = skipped
        call = calls[rank]
        culprits = tuple(
            sorted(r for r in waits[rank].missing if calls.get(r) and calls[r].site == calls[culprit].site)
        )
        waiting = tuple(sorted(calls.keys() - set(culprits)))
        inside = [r for r in waiting if calls[r].group.key == call.group.key and calls[r].seq == call.seq]
        return Finding(
            COLLECTIVE_MISSING,
            f"{phrases.ranks(culprits, True)} did not call the {call.op} that {phrases.ranks(inside)} "
            f"{phrases.verb(inside, 'is', 'are')} blocked in{phrases.at(call.site)}: "
            f"{phrases.verb(culprits, 'it is', 'they are')} in {calls[culprit].op}{phrases.at(calls[culprit].site)}.",
            culprits,
            waiting,
            call,
            where(standings, [*culprits, *waiting]),
            tuple(
                f"Rank {r} is in {phrases.in_call(c)}{phrases.at(standings[r].site)}."
                for r, c in sorted(calls.items())[:8]
            ),
            "Call every collective of a group on all of its members.",
            certainty="likely",
            hint=hints.deciding_branch(recording, path_to(recording.ranks[rank], call)),
        )
    cycle = ranks_in_a_cycle(waits, calls) or tuple(sorted(calls))
    waiting = tuple(sorted(calls.keys() - set(cycle)))
    return Finding(
        GROUP_ORDER,
        f"{phrases.ranks(cycle, True)} wait for each other in different groups: "
        + ", ".join(f"{rank} in {call.title} of {call.group}" for rank in cycle[:6] for call in [calls[rank]])
        + ".",
        cycle,
        waiting,
        calls[cycle[0]],
        where(standings, [*cycle, *waiting]),
        tuple(
            f"Rank {r} is in {phrases.in_call(c)}{phrases.at(standings[r].site)}." for r, c in sorted(calls.items())[:8]
        ),
        "Call the collectives of different groups in the same order on all ranks.",
    )


def _left_out(recording: Recording, waits: dict[int, Wait], calls: dict[int, Call]) -> tuple[int, int] | None:
    """(a rank that skipped a call of its usual sequence, a rank that waits in that call).

    Until now the rank made this call between its previous call and the one that it is in.
    """
    rounds: dict[int, list[tuple[Site, Site]]] = {}
    usual: dict[int, set[tuple[Site, Site]]] = {}
    asked: set[tuple[frozenset[int], Site]] = set()  # ranks that wait for the same at the same line get one answer
    for rank in sorted(calls):
        missing, left_out = waits[rank].missing, calls[rank].site
        if (missing, left_out) in asked:
            continue
        asked.add((missing, left_out))
        for other in sorted(missing & calls.keys()):
            if other not in rounds:
                sites = [call.site for call in recording.ranks[other].calls if call.number <= calls[other].number]
                rounds[other] = list(pairwise(sites))
                usual[other] = set(rounds[other][:-1])
            if not rounds[other] or left_out == calls[other].site:
                continue
            before, now = rounds[other][-1]
            known = usual[other]
            if (before, now) not in known and (before, left_out) in known and (left_out, now) in known:
                return other, rank
    return None


def _in_another_branch(recording: Recording, calls: dict[int, Call], culprit: int, rank: int) -> bool:
    mine, theirs = (path_to(recording.ranks[r], calls[r]) for r in (culprit, rank))
    return parting(recording, mine, theirs).relation == "exclusive"


def _skipped_in_cycle(recording: Recording, waits: dict[int, Wait], calls: dict[int, Call]) -> tuple[int, int] | None:
    """(a rank that has passed a call without making it, a rank that waits in that call)."""
    paths = {rank: path_to(recording.ranks[rank], call) for rank, call in calls.items()}
    asked: set[tuple[frozenset[int], str, tuple[Site, ...]]] = set()
    passed: dict[tuple[tuple[Site, ...], tuple[Site, ...]], bool] = {}
    for rank in sorted(calls):
        missing, key = waits[rank].missing, calls[rank].group.key
        if (missing, key, paths[rank]) in asked:
            continue
        asked.add((missing, key, paths[rank]))
        for other in sorted(missing & calls.keys()):
            if calls[other].group.key == key:
                continue
            both = paths[other], paths[rank]
            if both not in passed:
                passed[both] = _passed(recording, *both)
            if passed[both]:
                return other, rank
    return None


def _passed(recording: Recording, mine: tuple[Site, ...], theirs: tuple[Site, ...]) -> bool:
    """Whether a rank has passed the call to which the other path leads, and does not reach it in a later iteration."""
    apart = parting(recording, mine, theirs)
    if apart.relation != "sequence" or not apart.one_rest or apart.one.line <= apart.other.line:
        return False
    return not may_come_again(recording, mine, theirs)
