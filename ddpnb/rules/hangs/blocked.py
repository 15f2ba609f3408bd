"""DDP313, DDP314: ranks that are blocked outside any collective, or unresponsive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ddpnb.facts.snapshot import Snapshot
from ddpnb.facts.stack_evidence import waiting_lines
from ddpnb.facts.standings import Standing, before_init
from ddpnb.facts.stops import LOCAL, Stop, Waits
from ddpnb.model import checkpoints, phrases
from ddpnb.model.events.runs import ThreadFailed
from ddpnb.model.findings import FindingType
from ddpnb.model.names import given_name
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import RankRecord
from ddpnb.model.stacks import MAX_UNSEEN, Frame
from ddpnb.rules.hangs.stack_lines import caveats
from ddpnb.rules.hangs.table import stops_of
from ddpnb.rules.rule import ERROR, Draft, each, family

BLOCKED_ELSEWHERE = FindingType("DDP313", "blocked-elsewhere", after_patience=True)
RANK_FROZEN = FindingType("DDP314", "rank-frozen", after_patience=True)

_FRAMES, _STACKS, _THREADS, _NAMED = 8, 4, 2, 8


@family(BLOCKED_ELSEWHERE, RANK_FROZEN, failure=True, needs=())
def blocked(snap: Snapshot) -> Iterable[Draft]:
    """Ranks are blocked outside any collective, or unresponsive, and others wait for them."""
    for stop in stops_of(snap, "DDP313", "DDP314"):
        draft = _of_stop(stop)
        if all(one.record.unrecorded for one in stop.standings.values()):
            lines = waiting_lines(stop.standings, stop.waiting) if draft.kind == BLOCKED_ELSEWHERE else []
            draft = replace(draft, evidence=(*draft.evidence, *lines, *caveats(snap, stop)), certainty="likely")
        # In a call like any other: all its members may have made it.
        unseen = stop.waits is Waits.NOTHING and all(stop.standings[rank].function for rank in stop.gone)
        yield replace(draft, severity="note" if unseen else None)


def _of_stop(stop: Stop) -> Draft:
    """One that is in communication which ddpnb does not see may wait for another one that is blocked."""
    standings, away = stop.standings, stop.gone
    frozen = [rank for rank in away if standings[rank].state is RankState.UNRESPONSIVE]
    known = frozen or [rank for rank in away if not standings[rank].function]
    found = _draft(stop, RANK_FROZEN if frozen else BLOCKED_ELSEWHERE, known or list(away))
    others = [rank for rank in phrases.besides(away, found.culprits) if standings[rank].function]
    return replace(found, evidence=(*found.evidence, *(_within(rank, standings[rank]) for rank in others[:_NAMED])))


def _stacks(records: Mapping[int, RankRecord]) -> list[str]:
    """The stacks of ranks, those that are equal once: only they say what a rank does before its first call."""
    alike: dict[str, list[int]] = {}
    for rank, record in records.items():
        stack = record.main_stack
        frames = stack.frames[-_FRAMES:] if stack is not None else ()
        if len(frames) > 1:
            alike.setdefault(" > ".join(map(_frame, frames)), []).append(rank)
    return [f"Stack of {phrases.ranks(ranks)}: {text}." for text, ranks in list(alike.items())[:_STACKS]]


def _frame(frame: Frame) -> str:
    file = frame.file if frame.user else frame.file.rpartition("site-packages/")[2]
    return f"{frame.function} ({file}:{frame.line})"


def _within(rank: int, standing: Standing) -> str:
    return f"Rank {rank} is blocked in {standing.function}, which ddpnb does not see{phrases.at(standing.site)}."


def outside(standings: Iterable[Standing]) -> str:
    """``blocked outside any collective``; of ranks that communicate without passing the door, no more than is known."""
    told = list(standings)
    within = {standing.function for standing in told}
    if "" not in within:
        where = f"{within.pop()}, which" if len(within) == 1 else "communication that"
        return f"blocked in {where} ddpnb does not see"
    if within != {""} or any(standing.record.detached for standing in told):
        return "blocked"  # the collectives of one whose hook failed are not recorded: it may be blocked in one
    return "blocked outside any collective" + " that ddpnb sees" * any(map(may_be_unseen, told))


def may_be_unseen(standing: Standing) -> bool:
    """Whether its wait may be in communication that does not pass the door, and is loaded there."""
    waits_on = standing.record.process.waits_on
    return bool(standing.record.unseen) and not standing.function and not waits_on.startswith(LOCAL)


def _draft(stop: Stop, kind: FindingType, culprits: list[int]) -> Draft:
    standings, waiting = stop.standings, stop.waiting
    processes = [standings[rank].record.process for rank in culprits]
    stopped = [process.activity == "stopped" for process in processes]
    if kind == RANK_FROZEN:
        is_ = phrases.verb(culprits, "is", "are")
        if all(stopped):
            what, remedy = f"{is_} stopped (SIGSTOP)", "Continue it (kill -CONT)."
        elif any(stopped):
            what = f"{is_} unresponsive"
            remedy = "Continue the stopped processes (kill -CONT), and dump the stacks of the others from outside (py-spy dump)."
        elif all(process.holds_lock for process in processes):
            what = f"{is_} unresponsive: native code holds the GIL"
            remedy = "Look at the native frames (py-spy dump --native)."
        else:
            what = f"{is_} unresponsive for an unknown reason"
            remedy = "Dump the stack from outside (py-spy dump, as root where ptrace is restricted) and look at the process (top)."
    else:
        reasons = {process.waits_on for process in processes}
        reason = reasons.pop() if len(reasons) == 1 else ""
        waits_on = f", waiting for {reason}" if reason else ""
        what = f"{phrases.verb(culprits, 'is', 'are')} {outside(standings[rank] for rank in culprits)}{waits_on}"
        it_waits = phrases.verb(culprits, "it waits", "they wait")
        remedy = f"Resolve what {it_waits} for there" + (
            "; the other ranks cannot continue before that." if waiting else "."
        )
        if all(standings[rank].function for rank in culprits):
            remedy += " It may be that another member has not made this call: look at where the others are."
    evidence = []
    for rank in culprits[:_NAMED]:
        standing = standings[rank]
        place = phrases.at(standing.site)
        inactive = "was idle" if standing.reported else f"has been inactive for {standing.idle_s:.0f} s"
        evidence.append(f"Rank {rank} {inactive}{place}.")
        if standing.record.process.activity == "stopped" and not all(stopped):
            evidence.append(f"Rank {rank} is stopped (SIGSTOP).")
        if not standing.record.process.answered and standing.state is RankState.BLOCKED:
            evidence.append(f"Rank {rank} is unresponsive too: its stack was read from outside.")
        if standing.never:
            evidence.append(f"It can never continue: {standing.never}.")
        if standing.record.process.waits_on:
            evidence.append(f"Rank {rank} waits for {standing.record.process.waits_on} in the kernel.")
    for rank in culprits[:_NAMED]:
        if may_be_unseen(standings[rank]):
            loaded = [given_name(name) for name in standings[rank].record.unseen[:MAX_UNSEEN]]
            evidence.append(
                f"On rank {rank} {', '.join(loaded)} {'is' if len(loaded) == 1 else 'are'} loaded, whose communication ddpnb does "
                "not see: this wait may be in it."
            )
    failed = {rank: standings[rank].record.events(ThreadFailed)[:_THREADS] for rank in culprits}
    evidence += [
        f"Before, {thread.exception}{phrases.at(thread.site)} ended the thread {thread.thread!r} of rank {rank}."
        for rank, threads in failed.items()
        for thread in threads
    ]
    if any(failed.values()):
        remedy += " If it is for the work of a thread that failed, catch the exception in the thread and hand it on."
    early = [rank for rank in culprits if before_init(standings[rank].record)]
    if early:
        evidence.append(
            f"{phrases.ranks(early, True)} {phrases.verb(early, 'has', 'have')} not called init_process_group in this run."
        )
        evidence += _stacks({rank: standings[rank].record for rank in early})
        remedy += " Before the start-up it is most often a lock file that a killed process left behind, a compiler or a download."
    for rank in waiting[:_NAMED]:
        held, event = standings[rank].call, standings[rank].event
        if held is not None:
            evidence.append(f"Rank {rank} is blocked in {phrases.in_call(held)}{phrases.at(standings[rank].site)}.")
        elif event is not None:
            evidence.append(f"Rank {rank} is blocked in {event.title}{phrases.at(standings[rank].site)}.")
    sites = {standings[rank].site for rank in culprits}
    summary = f"{phrases.ranks(culprits, True)} {what}{phrases.at(sites.pop()) if len(sites) == 1 else ''}"
    summary += (
        f"; {phrases.ranks(waiting)} {phrases.verb(waiting, 'waits', 'wait')} for {phrases.verb(culprits, 'it', 'them')}."
        if waiting
        else "."
    )
    return Draft(
        summary,
        culprits,
        remedy,
        {rank: standings[rank].site for rank in culprits},
        waiting,
        evidence=evidence,
        kind=kind,
        also=(
            *((rank, thread.site) for rank, threads in failed.items() for thread in threads),
            *((rank, standings[rank].site) for rank in waiting),
        ),
        collective=standings[waiting[0]].call if waiting else None,
        certainty="proven"
        if all(standings[rank].never for rank in culprits)
        else "likely"
        if (kind == BLOCKED_ELSEWHERE and any(standings[rank].function for rank in culprits))
        or (
            kind == RANK_FROZEN and all(standings[rank].reported for rank in culprits)
        )  # the watchdog says what a stop of it "typically" means
        else "timed",
        stop=stop,
    )


@family(BLOCKED_ELSEWHERE, after=(ERROR, "DDP306", "DDP318"), needs=())
def after_checkpoints(snap: Snapshot) -> Iterable[Draft]:
    """Ranks wrote no further checkpoint line while others did, or all after the same one."""
    if snap.recording.report is None:
        return
    stand = (r for r, one in snap.standings.items() if one.state not in (RankState.ENDED, RankState.COMPUTING))
    last = snap.ranks.among(stand).of(checkpoints.last)
    if not last:
        return
    lowest = min(one.number for one in last.values())
    behind = tuple(rank for rank, one in last.items() if one.number == lowest)
    others = phrases.besides(last, behind)
    name = f'"{last[behind[0]].name}"' if last[behind[0]].name else "no name"
    yield Draft(
        f"The last line of {phrases.ranks(behind)} is checkpoint {lowest} ({name})"
        + (f"; {phrases.ranks(others)} passed later ones." if others else ": none of these ranks passed a later one."),
        behind,
        "Look at the statements behind that checkpoint; the stack of a rank that hangs there says which "
        "(py-spy dump --pid PID).",
        waiting=others,
        evidence=each(
            last,
            lambda rank: (
                f"Rank {rank} passed checkpoint {last[rank].number} last"
                + (f': "{last[rank].name}".' if last[rank].name else ".")
            ),
        ),
        certainty="likely",
    )
