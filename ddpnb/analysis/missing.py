"""Ranks that wait for what will never come: the causes that the wait-for graph can prove."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.analysis import phrases
from ddpnb.analysis.branches import decisions, loop_around, loop_returns
from ddpnb.analysis.mismatch import uneven_iterations
from ddpnb.analysis.paths import parting, path_to
from ddpnb.analysis.standing import Kind, Standing
from ddpnb.analysis.waits import Wait, address_of, as_int, members_of
from ddpnb.model.calls import NO_SITE, Call, CallState, Site
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording


def find(
    recording: Recording,
    standings: dict[int, Standing],
    waits: dict[int, Wait],
    stuck: frozenset[int],
    patience: float,
) -> list[Finding]:
    """One finding per independent knot of the wait-for graph."""
    found = []
    for knot in _knots(waits, stuck):
        waiting = sorted(knot & stuck)
        # Of those that are awaited, the ones that may still come are not to blame.
        gone = [
            rank
            for rank in sorted(knot - stuck)
            if rank not in standings or standings[rank].kind is Kind.ENDED or standings[rank].expired(patience)
        ]
        finding = _explain(recording, standings, waits, waiting, gone)
        if finding is not None:
            found.append(finding)
    return found


def _knots(waits: dict[int, Wait], stuck: frozenset[int]) -> list[set[int]]:
    """Stuck ranks and those that they wait for, in connected parts."""
    parts: list[set[int]] = []
    for rank in sorted(stuck):
        joined = {rank} | set(waits[rank].missing)
        rest = []
        for part in parts:
            if part & joined:
                joined |= part
            else:
                rest.append(part)
        parts = [*rest, joined]
    return parts


def _explain(
    recording: Recording,
    standings: dict[int, Standing],
    waits: dict[int, Wait],
    waiting: list[int],
    gone: list[int],
) -> Finding | None:
    present = [rank for rank in gone if rank in standings]
    starting = [rank for rank in waiting if standings[rank].kind is Kind.START]
    if starting and (absent := [rank for rank in gone if rank not in standings]):
        return _world_too_large(standings, starting, absent)
    away = [rank for rank in present if standings[rank].kind in (Kind.ELSEWHERE, Kind.FROZEN)]
    if away:
        return _away(standings, waiting, away)
    ended = [rank for rank in present if standings[rank].kind is Kind.ENDED]
    if starting and len({address_of(standings[rank].record) for rank in starting}) > 1:
        return _apart(standings, starting)
    if starting and ended:
        return _never_joined(standings, starting, ended)
    grouping = [rank for rank in waiting if standings[rank].kind is Kind.NEW_GROUP]
    if grouping:
        return _group_not_made(standings, waits, grouping, waiting)
    calls = {rank: call for rank in waiting if (call := standings[rank].call) is not None}
    if any(call.is_p2p for call in calls.values()):
        return _p2p(recording, standings, waits, calls, ended)
    if ended:
        return _left(recording, standings, calls, ended)
    return _crossed(recording, standings, waits, calls)


# -- the causes, one function each


def _world_too_large(standings: dict[int, Standing], starting: list[int], absent: list[int]) -> Finding:
    sizes = {rank: as_int(standings[rank].phase.facts.get("world_size")) for rank in starting}  # type: ignore[union-attr]
    launched = len(standings)
    wrong = [rank for rank, size in sizes.items() if size != launched] or starting
    size = max(size or 0 for size in sizes.values())
    return Finding(
        "DDP102",
        f"{phrases.ranks(wrong, True)} {phrases.verb(wrong, 'expects', 'expect')} a world of {size} ranks, "
        f"but {launched} were launched: {phrases.ranks(absent)} will never join.",
        tuple(wrong),
        tuple(rank for rank in starting if rank not in wrong),
        None,
        _where(standings, starting),
        tuple(
            f"Rank {rank} is in init_process_group with world_size={sizes[rank]}{phrases.at(standings[rank].site)}."
            for rank in starting[:8]
        ),
        "Leave world_size to the launcher (WORLD_SIZE in the environment), or launch as many ranks as the script asks for.",
    )


def _apart(standings: dict[int, Standing], starting: list[int]) -> Finding:
    sides: dict[str, list[int]] = {}
    for rank in starting:
        sides.setdefault(address_of(standings[rank].record), []).append(rank)
    ordered = sorted(sides.values(), key=lambda side: (-len(side), side[0]))
    culprits = sorted(rank for side in ordered[1:] for rank in side)
    waiting = ordered[0]
    return Finding(
        "DDP104",
        f"The ranks look for each other in different places: {phrases.ranks(culprits)} not where {phrases.ranks(waiting)} "
        f"{phrases.verb(waiting, 'is', 'are')}.",
        tuple(culprits),
        tuple(waiting),
        None,
        _where(standings, [*culprits, *waiting]),
        tuple(f"{phrases.ranks(ranks, True)}: {address}" for address, ranks in sorted(sides.items())[:8]),
        "Give every rank the same MASTER_ADDR and MASTER_PORT, or the same init_method.",
    )


def _never_joined(standings: dict[int, Standing], starting: list[int], ended: list[int]) -> Finding:
    return Finding(
        "DDP102",
        f"{phrases.ranks(ended, True)} {phrases.verb(ended, 'has', 'have')} ended without joining: "
        f"{phrases.ranks(starting)} {phrases.verb(starting, 'waits', 'wait')} in init_process_group for ever.",
        tuple(ended),
        tuple(starting),
        None,
        _where(standings, [*ended, *starting]),
        tuple(
            [
                f"{phrases.ranks(starting, True)} {phrases.verb(starting, 'is', 'are')} in init_process_group{phrases.at(standings[starting[0]].site)}."
            ]
            + [f"Rank {rank}: {standings[rank].record.ending}, and never called it." for rank in ended[:8]]
        ),
        "Every rank that was launched must call init_process_group.",
    )


def _away(standings: dict[int, Standing], waiting: list[int], away: list[int]) -> Finding:
    frozen = [rank for rank in away if standings[rank].kind is Kind.FROZEN]
    if frozen:
        return away_finding(standings, "DDP314", frozen, waiting, standings[waiting[0]].call)
    return away_finding(standings, "DDP313", away, waiting, standings[waiting[0]].call)


def away_finding(
    standings: dict[int, Standing], code: str, culprits: list[int], waiting: list[int], call: Call | None
) -> Finding:
    """DDP313 or DDP314: ranks that stand still outside of collectives."""
    first = standings[culprits[0]]
    process = first.record.process
    stopped = process.activity == "stopped"
    if code == "DDP314":
        is_, does = phrases.verb(culprits, "is", "are"), phrases.verb(culprits, "does", "do")
        what = f"{is_} stopped (SIGSTOP)" if stopped else f"{does} not react: native code holds the interpreter lock"
        remedy = "Continue it (kill -CONT)." if stopped else "Look at the native frames (py-spy dump --native)."
    else:
        what = f"{phrases.verb(culprits, 'is', 'are')} blocked outside of collectives, waiting for {process.waits_on or 'something'}"
        remedy = "Mend what it waits for there; no other rank can go on before it comes back."
    evidence = []
    for rank in culprits[:8]:
        standing = standings[rank]
        place = phrases.at(standing.site)
        evidence.append(f"Rank {rank} has done nothing for {standing.idle_s:.0f} s{place}.")
        if standing.record.process.waits_on:
            evidence.append(f"Rank {rank} waits in the kernel for {standing.record.process.waits_on}.")
    for rank in waiting[:8]:
        held = standings[rank].call
        if held is not None:
            evidence.append(f"Rank {rank} waits in {phrases.in_call(held)}{phrases.at(standings[rank].site)}.")
        elif standings[rank].phase is not None:
            evidence.append(f"Rank {rank} waits in {standings[rank].phase.name}{phrases.at(standings[rank].site)}.")  # type: ignore[union-attr]
    summary = f"{phrases.ranks(culprits, True)} {what}{phrases.at(first.site)}"
    summary += (
        f"; {phrases.ranks(waiting)} {phrases.verb(waiting, 'waits', 'wait')} for {phrases.verb(culprits, 'it', 'them')}."
        if waiting
        else "."
    )
    return Finding(
        code,
        summary,
        tuple(culprits),
        tuple(waiting),
        call,
        _where(standings, [*culprits, *waiting]),
        tuple(evidence),
        remedy,
    )


def _group_not_made(
    standings: dict[int, Standing], waits: dict[int, Wait], grouping: list[int], waiting: list[int]
) -> Finding:
    absent = sorted({m for rank in grouping for m in waits[rank].missing})
    others = [rank for rank in absent if rank not in grouping]
    culprits = _unlike_lists(standings) or others or grouping
    held = [rank for rank in waiting if rank not in culprits]
    evidence = []
    for rank in sorted(set(grouping) | set(culprits))[:8]:
        made = [p for p in standings[rank].record.phases if p.name == "new_group"] if rank in standings else []
        lists = ", ".join(str(members_of(p)) for p in made[-4:]) or "none"
        evidence.append(
            f"Rank {rank} called new_group for: {lists}{phrases.at(standings[rank].site) if rank in standings else ''}."
        )
    makers = [rank for rank in grouping if rank not in culprits] or grouping
    phase = standings[makers[0]].phase
    members = members_of(phase) if phase is not None else []
    return Finding(
        "DDP108",
        f"{phrases.ranks(makers, True)} {phrases.verb(makers, 'is', 'are')} making a group of {members}, "
        f"but {phrases.ranks(culprits)} {phrases.verb(culprits, 'does', 'do')} not make the same one.",
        tuple(culprits),
        tuple(held),
        None,
        _where(standings, [*culprits, *held]),
        tuple(evidence),
        "Call new_group on every rank, members or not, with the same lists in the same order.",
    )


def _p2p(
    recording: Recording,
    standings: dict[int, Standing],
    waits: dict[int, Wait],
    calls: dict[int, Call],
    ended: list[int],
) -> Finding:
    p2p = {rank: call for rank, call in calls.items() if call.is_p2p}
    rest = sorted(set(calls) - set(p2p))
    peers = sorted({peer for rank in p2p for peer in waits[rank].missing if peer not in p2p and peer in standings})
    evidence = [
        f"Rank {rank} is in {call.title}{phrases.at(standings[rank].site)}." for rank, call in sorted(p2p.items())[:8]
    ]
    evidence += [
        f"Rank {rank} is in {phrases.in_call(calls[rank])}{phrases.at(standings[rank].site)}." for rank in rest[:8]
    ]
    evidence += [f"Rank {rank} has ended{phrases.at(standings[rank].site)}." for rank in ended[:8]]
    first = p2p[min(p2p)]
    if peers:
        culprits, waiting = peers, sorted(set(p2p) | set(rest) - set(peers))
        waiting = [rank for rank in waiting if rank not in peers]
        partner = "receive" if first.op == "send" else "send"
        summary = (
            "; ".join(f"Rank {rank} waits in {call.title}" for rank, call in sorted(p2p.items())[:6]) + ", "
            f"but {phrases.ranks(peers)} will never make the {partner} that matches it."
        )
        remedy = "Give every receive a send with the same peer and tag, and every send a receive."
        dropped = [
            (peer, call)
            for peer in peers
            for call in (recording.ranks[peer].calls if peer in recording.ranks else ())
            if call.state is CallState.DROPPED and call.peer in p2p
        ]
        if dropped:
            peer, call = dropped[-1]
            evidence.append(
                f"Rank {peer} made a {call.title}{phrases.at(call.site)}, but threw its Work away: that ends it."
            )
            summary = f"{phrases.ranks(sorted(p2p), True)} {phrases.verb(set(p2p), 'waits', 'wait')} for a send of rank {peer} whose Work was thrown away."
            remedy = "Keep what isend returns, and wait() for it."
    else:
        culprits, waiting = sorted(p2p), rest
        summary = (
            f"{phrases.ranks(culprits, True)} wait for each other in point-to-point calls: "
            + ", ".join(f"{rank} in {call.title}" for rank, call in sorted(p2p.items())[:8])
            + "."
        )
        remedy = "Let one side send while the other receives, or post all with batch_isend_irecv; check peers and tags."
    return Finding(
        "DDP307",
        summary,
        tuple(culprits),
        tuple(waiting),
        first,
        _where(standings, [*culprits, *waiting]),
        tuple(evidence),
        remedy,
    )


def _left(recording: Recording, standings: dict[int, Standing], calls: dict[int, Call], ended: list[int]) -> Finding:
    """Ranks that ended well while others wait for them: a loop that was shorter, or a missing call."""
    waiting = sorted(calls)
    first = min((r for r in waiting if any(e in calls[r].group.ranks for e in ended)), default=waiting[0])
    call = calls[first]
    missing = [rank for rank in ended if rank in call.group.ranks] or ended
    source = recording.sources.get(call.site.file, "")
    been = {
        rank: sum(1 for c in recording.ranks[rank].calls if c.site == call.site and c.group.key == call.group.key)
        for rank in missing
    }
    made = {
        rank: sum(1 for c in recording.ranks[rank].calls if c.group.key == call.group.key and c.seq) for rank in missing
    }
    where = _where(standings, [*missing, *waiting])
    evidence = [
        f"{phrases.ranks(waiting, True)} {phrases.verb(waiting, 'is', 'are')} in {phrases.in_call(call)}{phrases.at(standings[first].site)}.",
        *(
            f"Rank {rank} has ended ({standings[rank].record.ending}) after {made[rank]} calls in this group, "
            f"{been[rank]} of them from that line."
            for rank in missing[:8]
        ),
    ]
    in_loop = loop_around(source, call.site.line) is not None or not source
    early = loop_returns(source, call.site.line) if source else None
    if all(been.values()) and in_loop and early is None:
        return uneven_iterations(tuple(missing), tuple(waiting), call, where, evidence)
    decided = decisions(source, call.site.line, ended=True) if source else []
    evidence += [text for _, text in decided]
    if len(decided) == 1:  # a rank that has ended stands nowhere: show where it turned away
        turned = replace(call.site, line=decided[0][0])
        where = tuple((rank, turned if rank in missing else site) for rank, site in where)
    return Finding(
        "DDP301",
        f"{phrases.ranks(missing, True)} will never make the {call.op} that {phrases.ranks(waiting)} "
        f"{phrases.verb(waiting, 'is', 'are')} waiting in{phrases.at(standings[first].site)}: "
        f"{phrases.verb(missing, 'it has', 'they have')} ended.",
        tuple(missing),
        tuple(waiting),
        call,
        where,
        tuple(evidence),
        "Call it on all ranks or on none: take it out of the condition, or let all ranks leave together.",
    )


def _crossed(
    recording: Recording, standings: dict[int, Standing], waits: dict[int, Wait], calls: dict[int, Call]
) -> Finding | None:
    """A cycle over several groups: each waits in one for a rank that waits in another."""
    if len({call.group.key for call in calls.values()}) < 2:
        return None
    skipped = _skipped_in_cycle(recording, waits, calls)
    if skipped is not None:
        culprit, rank = skipped
        call = calls[rank]
        culprits = tuple(
            sorted(r for r in waits[rank].missing if calls.get(r) and calls[r].site == calls[culprit].site)
        )
        waiting = tuple(r for r in sorted(calls) if r not in culprits)
        inside = [r for r in waiting if calls[r].group.key == call.group.key and calls[r].seq == call.seq]
        return Finding(
            "DDP301",
            f"{phrases.ranks(culprits, True)} will never make the {call.op} that {phrases.ranks(inside)} "
            f"{phrases.verb(inside, 'is', 'are')} waiting in{phrases.at(call.site)}.",
            culprits,
            waiting,
            call,
            _where(standings, [*culprits, *waiting]),
            tuple(
                f"Rank {r} is in {phrases.in_call(c)}{phrases.at(standings[r].site)}."
                for r, c in sorted(calls.items())[:8]
            ),
            "Let every member of a group make every call of that group.",
        )
    culprits = _cycle(waits, calls)
    waiting = tuple(rank for rank in sorted(calls) if rank not in culprits)
    return Finding(
        "DDP306",
        f"{phrases.ranks(culprits, True)} wait for each other in different groups: "
        + ", ".join(f"{rank} in {call.title} of {call.group}" for rank in culprits[:6] for call in [calls[rank]])
        + ".",
        culprits,
        waiting,
        calls[culprits[0]],
        _where(standings, [*culprits, *waiting]),
        tuple(
            f"Rank {r} is in {phrases.in_call(c)}{phrases.at(standings[r].site)}." for r, c in sorted(calls.items())[:8]
        ),
        "Make the calls of several groups in the same order on all ranks.",
    )


def _skipped_in_cycle(recording: Recording, waits: dict[int, Wait], calls: dict[int, Call]) -> tuple[int, int] | None:
    """(a rank that has passed a call without making it, a rank that waits in that call)."""
    for rank in sorted(calls):
        for other in sorted(waits[rank].missing & set(calls)):
            if calls[other].group.key == calls[rank].group.key:
                continue
            where = parting(
                recording, path_to(recording.ranks[other], calls[other]), path_to(recording.ranks[rank], calls[rank])
            )
            if where.relation != "sequence" or where.one.line <= where.other.line:
                continue
            loop = loop_around(recording.sources.get(where.one.file, ""), where.one.line)
            if loop is None or not loop[0] <= where.other.line <= loop[1]:
                return other, rank
    return None


def _cycle(waits: dict[int, Wait], calls: dict[int, Call]) -> tuple[int, ...]:
    """The ranks that, over any number of waits, wait for themselves."""

    def reach(start: int) -> set[int]:
        seen: set[int] = set()
        front = {start}
        while front:
            front = {m for rank in front for m in waits[rank].missing if m in calls} - seen
            seen |= front
        return seen

    found = tuple(rank for rank in sorted(calls) if rank in reach(rank))
    return found or tuple(sorted(calls))


def _unlike_lists(standings: dict[int, Standing]) -> list[int]:
    """The ranks whose lists for new_group are unlike those of the others, at the first such call."""
    made = {
        rank: [tuple(members_of(p)) for p in s.record.phases if p.name == "new_group" and not p.facts.get("local")]
        for rank, s in standings.items()
    }
    for turn in range(max(map(len, made.values()), default=0)):
        sides: dict[tuple[int, ...], list[int]] = {}
        for rank in sorted(made):
            if turn < len(made[rank]):
                sides.setdefault(made[rank][turn], []).append(rank)
        if len(sides) > 1:
            ordered = sorted(sides.values(), key=lambda side: (-len(side), side[0]))
            return sorted(rank for side in ordered[1:] for rank in side)
    return []


def _where(standings: dict[int, Standing], ranks: list[int]) -> tuple[tuple[int, Site], ...]:
    return tuple(
        (rank, standings[rank].site) for rank in ranks if rank in standings and standings[rank].site != NO_SITE
    )
