"""Jobs without a recorder: what follows from stacks and from the state of the processes, and from nothing else.

Which call of a group a rank is in, for which ranks it waits and with what arguments is not known. So a finding is likely
at most, and only about ranks that made no progress for as long as patience.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ddpnb.facts.once import once
from ddpnb.facts.places import where
from ddpnb.facts.stack_calls import POINT_TO_POINT, START, WORK, may_wait_for_work
from ddpnb.facts.stack_evidence import FEW, different_variables, is_past, still_s, waiting_lines
from ddpnb.facts.standings import Standing, compiles
from ddpnb.model import phrases
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import Recording
from ddpnb.rules.hangs import blocked
from ddpnb.rules.hangs.blocked import BLOCKED_ELSEWHERE, RANK_FROZEN
from ddpnb.rules.hangs.mismatch import OP_MISMATCH
from ddpnb.rules.hangs.p2p_deadlock import P2P_DEADLOCK
from ddpnb.rules.hangs.skipped_call import COLLECTIVE_MISSING
from ddpnb.rules.hangs.startup import WORLD_INCOMPLETE
from ddpnb.rules.hangs.stragglers import LATE, LATE_COMPILER, STRAGGLER

SAME_COLLECTIVE = FindingType("DDP318", "same-collective", after_patience=True)

_NOBODY_WAITS = 3  # times the patience, as for recorded ranks
_NOT_RECORDED = (
    "No recorder ran in these ranks: this follows from their stacks alone. Which call of its group each is in, for "
    "which ranks it waits and with which sizes is not known."
)


def find(recording: Recording, standings: Mapping[int, Standing], patience: float) -> list[Finding]:
    """Why these ranks make no progress; a note where others compute; nothing before patience is over."""
    standings = {rank: _with_work(recording, standing) for rank, standing in standings.items()}
    finding = _find(recording, standings, patience)
    if finding is None:
        return []
    unknown = [rank for rank in range(recording.world_size) if not _seen(standings.get(rank))]
    comparable = sorted(finding.concerned) if finding.type in (SAME_COLLECTIVE, OP_MISMATCH) else ()
    evidence = [*finding.evidence, *different_variables(standings, comparable), _NOT_RECORDED]
    if unknown and recording.report is None and finding.type != WORLD_INCOMPLETE:
        have = phrases.verb(unknown, "has", "have")
        evidence.append(f"{phrases.ranks(unknown, True)} {have} no process on this host: attach on the others too.")
    return [replace(finding, certainty="likely", evidence=tuple(evidence))]


def _find(recording: Recording, standings: dict[int, Standing], patience: float) -> Finding | None:
    waiting = [rank for rank, one in standings.items() if one.function and still_s(one) >= patience]
    frozen = [rank for rank, one in standings.items() if one.state is RankState.UNRESPONSIVE and one.idle_s >= patience]
    ended = [rank for rank, one in standings.items() if one.state is RankState.ENDED]
    silent = {rank: None for rank, one in standings.items() if _nowhere(one)}
    elsewhere = [
        rank
        for rank, one in standings.items()
        if not one.function and one.expired(patience) and rank not in silent and one.state is not RankState.COMPUTING
    ]
    explained = {*waiting, *frozen, *ended, *elsewhere}
    moving = [
        rank
        for rank, one in standings.items()
        if _seen(one) and rank not in explained and one.state is not RankState.UNKNOWN
    ]
    if not waiting:
        return _nobody_waits(standings, frozen, elsewhere, moving, patience)
    if frozen:
        return blocked.finding(standings, RANK_FROZEN, frozen, waiting, None)
    if ended:
        return _missing(standings, waiting, ended, "it has ended", "they have ended")
    few = len(silent) == 1 or 0 < len(silent) < len(waiting)
    if few and not moving and not elsewhere and len({standings[rank].function for rank in waiting}) == 1:
        return _not_shown(standings, waiting, list(silent))
    if moving and recording.report is not None:
        return _missing(standings, waiting, moving, "it was outside it", "they were outside it")
    if moving:
        return _late(standings, waiting, moving)
    if elsewhere:
        past = [rank for rank in elsewhere if is_past(recording, standings[waiting[0]].record, standings[rank].record)]
        if past and past == elsewhere:
            return _missing(standings, waiting, past, "it is past it", "they are past it")
        finding = blocked.finding(standings, BLOCKED_ELSEWHERE, elsewhere, waiting, None)
        return replace(finding, evidence=(*finding.evidence, *waiting_lines(standings, waiting)))
    return _all_wait(recording, standings, waiting)


def _with_work(recording: Recording, standing: Standing) -> Standing:
    """A rank at a line of the user's that calls ``wait``: it may wait for a collective there, without a frame of torch."""
    if standing.state is not RankState.BLOCKED:
        return standing
    lines = _lines(recording, standing.site.file)
    text = lines[standing.site.line - 1] if 0 < standing.site.line <= len(lines) else ""
    return replace(standing, function=WORK) if may_wait_for_work(standing.record.main_stack, text) else standing


@once
def _lines(recording: Recording, file: str) -> list[str]:
    return recording.sources.get(file, "").splitlines()


def _seen(standing: Standing | None) -> bool:
    return standing is not None and (
        standing.record.pid > 0 or bool(standing.record.stacks) or standing.state is RankState.ENDED
    )


def _nowhere(standing: Standing) -> bool:
    """Whether a report does not show where a rank was: it has no call and no stack of it."""
    return standing.reported and standing.state is RankState.UNKNOWN and standing.record.main_stack is None


# -- who waits, and who does not


def _nobody_waits(
    standings: dict[int, Standing], frozen: list[int], elsewhere: list[int], moving: list[int], patience: float
) -> Finding | None:
    if moving or not (frozen or elsewhere):
        return None
    if not all(standings[rank].idle_s >= _NOBODY_WAITS * patience for rank in (*frozen, *elsewhere)):
        return None
    return blocked.finding(standings, RANK_FROZEN if frozen else BLOCKED_ELSEWHERE, frozen or elsewhere, [], None)


def _missing(standings: dict[int, Standing], waiting: list[int], missing: list[int], one: str, many: str) -> Finding:
    """DDP301: ranks that cannot reach the call any more in which others wait."""
    first = standings[waiting[0]]
    how = [_instead(standings[rank]) for rank in missing[:FEW] if not _nowhere(standings[rank])]
    return Finding(
        WORLD_INCOMPLETE if first.function == START else COLLECTIVE_MISSING,
        f"{phrases.ranks(missing, True)} did not call the {first.function} that {phrases.ranks(waiting)} "
        f"{phrases.verb(waiting, 'is', 'are')} blocked in{phrases.at(first.site)}: "
        f"{phrases.verb(missing, one, many)}.",
        tuple(missing),
        tuple(waiting),
        None,
        where(standings, [*missing, *waiting]),
        (*waiting_lines(standings, waiting), *how),
        "Call it on all ranks or on none: move it out of the condition, or end all ranks together.",
    )


def _not_shown(standings: dict[int, Standing], waiting: list[int], silent: list[int]) -> Finding:
    """DDP301: ranks that no file shows in a call, while others waited in one."""
    mentioned = any(standings[rank].record.mentioned for rank in silent)
    why = ("its stack is in none of these files", "their stacks are in none of these files")
    absent = ("it is in none of these files", "they are in none of these files")
    finding = _missing(standings, waiting, silent, *(why if mentioned else absent))
    who, what = phrases.ranks(silent), phrases.verb(silent, "its output and its stack", "their output and their stacks")
    collect = f"What {who} did instead is not in these files: {what} (py-spy dump --pid PID) say it."
    return replace(finding, remedy=f"{finding.remedy} {collect}")


def _instead(standing: Standing) -> str:
    """What a rank that did not make a call has done."""
    ending = standing.record.ending
    if ending is not None:
        return f"Rank {standing.rank} {phrases.ended(ending)}."
    if standing.reported and standing.state is RankState.COMPUTING:
        return f"Rank {standing.rank} was running{phrases.at(standing.site)}."
    still = f" has been inactive for {standing.idle_s:.0f} s" if not standing.reported else " was"
    return (
        f"Rank {standing.rank}{still}{phrases.at(standing.site)}, behind that line in the same function, and no loop "
        "contains both."
    )


def _late(standings: dict[int, Standing], waiting: list[int], moving: list[int]) -> Finding:
    """DDP315: others wait for ranks that move."""
    compiling = [rank for rank in moving if compiles(standings[rank].record)]
    return Finding(
        STRAGGLER,
        f"{phrases.ranks(moving, True)} {phrases.verb(moving, 'is a straggler', 'are stragglers')}"
        f"{phrases.at(standings[moving[0]].site)}; {phrases.ranks(waiting)} {phrases.verb(waiting, 'waits', 'wait')} "
        f"in {standings[waiting[0]].function}{phrases.at(standings[waiting[0]].site)}.",
        tuple(moving),
        tuple(waiting),
        None,
        where(standings, [*moving, *waiting]),
        tuple(
            f"Rank {rank} {'is inside of torch.compile' if rank in compiling else 'still moves'}{phrases.at(standings[rank].site)}."
            for rank in moving[:FEW]
        ),
        LATE_COMPILER if compiling == moving else LATE,
    )


def _all_wait(recording: Recording, standings: dict[int, Standing], waiting: list[int]) -> Finding | None:
    calls: dict[object, list[int]] = defaultdict(list)
    for rank in waiting:
        one = standings[rank]
        calls[one.function, one.site].append(rank)
    sides = sorted(calls.values(), key=lambda ranks: (-len(ranks), ranks))
    functions = {standings[rank].function for rank in waiting}
    absent = [rank for rank in range(recording.world_size) if not _seen(standings.get(rank))]
    if functions == {START} and absent:
        return Finding(
            WORLD_INCOMPLETE,
            f"{phrases.ranks(waiting, True)} {phrases.verb(waiting, 'waits', 'wait')} in {START}"
            f"{phrases.at(standings[waiting[0]].site)}, and {phrases.ranks(absent)} "
            f"{phrases.verb(absent, 'has', 'have')} no process on this host.",
            (),
            tuple(waiting),
            None,
            where(standings, waiting),
            tuple(waiting_lines(standings, waiting)),
            "Look whether the other ranks were started, on their hosts, with the same MASTER_ADDR and MASTER_PORT.",
        )
    if functions <= POINT_TO_POINT:
        return _differing(
            P2P_DEADLOCK, standings, sides, "in point-to-point calls", "Every send needs a recv on the other side."
        )
    if len(sides) > 1:
        remedy = (
            "Call the same collectives in the same order on all ranks. If these calls belong to different process "
            "groups, look for the ranks of each group that are in another call."
        )
        return _differing(OP_MISMATCH, standings, sides, "in different calls", remedy)
    if len(waiting) < 2:
        return None  # of the others nothing is known
    return Finding(
        SAME_COLLECTIVE,
        f"{phrases.ranks(waiting, True)} are all blocked in {standings[waiting[0]].function}"
        f"{phrases.at(standings[waiting[0]].site)}: their stacks show no difference.",
        (),
        tuple(waiting),
        None,
        where(standings, waiting),
        tuple(waiting_lines(standings, waiting)),
        "Compare the sizes, dtypes and roots of the call and the number of earlier iterations on the ranks (their "
        "variables); look at the network between them (GLOO_SOCKET_IFNAME, NCCL_DEBUG=INFO). Started with "
        "`ddpnb run --`, the job is recorded, and the finding names the difference.",
    )


def _differing(
    kind: FindingType, standings: dict[int, Standing], sides: Sequence[Sequence[int]], how: str, remedy: str
) -> Finding:
    """The ranks are in different calls; those that are fewer than all others together are named."""
    everybody = [rank for side in sides for rank in side]
    odd = [rank for side in sides[1:] for rank in side]
    named = len(odd) < len(sides[0]) and kind == OP_MISMATCH
    text = phrases.by_side(sides, lambda rank: f"{standings[rank].function}{phrases.at(standings[rank].site)}")
    return Finding(
        kind,
        f"{phrases.ranks(everybody, True)} {phrases.verb(everybody, 'is', 'are')} blocked {how}: {text}.",
        tuple(odd) if named else (),
        tuple(sides[0]) if named else () if len(sides) > 1 else tuple(everybody),
        None,
        where(standings, everybody),
        tuple(waiting_lines(standings, everybody)),
        remedy,
        sides=() if named or len(sides) < 2 else tuple(map(tuple, sides)),
    )
