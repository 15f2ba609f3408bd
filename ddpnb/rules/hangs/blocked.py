"""DDP313, DDP314: ranks that are blocked outside any collective, or unresponsive."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from ddpnb.recording import checkpoints, phrases
from ddpnb.recording.calls import Site
from ddpnb.recording.events.runs import ThreadFailed
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stack_evidence import waiting_lines
from ddpnb.recording.facts.stacks import frames_of
from ddpnb.recording.facts.standings import Standing, before_init
from ddpnb.recording.facts.stops import LOCAL, Stop, Waits
from ddpnb.recording.findings import FindingType
from ddpnb.recording.names import given_name
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Process, RankRecord
from ddpnb.recording.source.statements import key_lines
from ddpnb.recording.split import split
from ddpnb.recording.stacks import MAX_UNSEEN, Frame
from ddpnb.rules.hangs.stack_lines import caveats
from ddpnb.rules.hangs.table import hang
from ddpnb.rules.rule import ERROR, Draft, alike, each, family, say, title, waited_for

BLOCKED_ELSEWHERE = FindingType("DDP313", "blocked-elsewhere", after_patience=True)
RANK_FROZEN = FindingType("DDP314", "rank-frozen", after_patience=True)

_PROCESS = re.compile(r"\bprocess \d+")

_FRAMES, _STACKS, _THREADS, _NAMED = 8, 4, 2, 8


@hang(BLOCKED_ELSEWHERE, RANK_FROZEN, needs=())
def blocked(snap: Snapshot, stop: Stop) -> Draft:
    """Ranks are blocked outside any collective, or unresponsive, and others wait for them."""
    draft = _of_stop(stop)
    if all(one.record.unrecorded for one in stop.standings.values()):
        lines = waiting_lines(stop.standings, stop.waiting) if draft.kind == BLOCKED_ELSEWHERE else []
        draft = replace(draft, evidence=(*draft.evidence, *lines, *caveats(snap, stop)), certainty="likely")
    if keys := dict.fromkeys(key for rank in stop.gone for key in _KEY.findall(awaits_key(stop.standings[rank]))):
        told = [line for key in keys for line in _who_sets(snap, key)]
        draft = replace(draft, evidence=(*draft.evidence, *told), remedy=_SET_IT)
    # In a call like any other: all its members may have made it.
    unseen = stop.waits is Waits.NOTHING and all(stop.standings[rank].function for rank in stop.gone)
    return replace(draft, severity="note" if unseen else None)


_KEY = re.compile(r"'([^']+)'")
_SET_IT = "Let one rank set this key, under the same name, before it waits for the others; check the names and prefixes of both sides."
_LINES = 4  # that set a key


def awaits_key(standing: Standing) -> str:
    """The keys of a store for which a rank waits, in the recorder's words; empty if it waits for something else."""
    waits_on = standing.record.process.waits_on
    return waits_on if waits_on.startswith("the key") else ""


def _who_sets(snap: Snapshot, key: str) -> Iterable[str]:
    """Which lines set a key, and which ranks ran them; where none does, those that set another one."""
    sources = snap.recording.sources.items()
    lines = [(Site(file, line, ""), name) for file, text in sources for line, name in key_lines(text)]
    exact = [one for one in lines if fnmatchcase(key, one[1].replace("[", "[[]"))]
    if lines and not exact:
        yield f"No line of the recorded source sets the key '{key}'."
    for site, name in (exact or lines)[:_LINES]:
        ran = [rank for rank, record in snap.ranks.items() if record.executed is not None and _ran(record, site)]
        what = f"Line {site} sets " + ("it" if exact else f"'{name}'")
        if any(record.executed is not None for record in snap.ranks.values()):
            yield f"{what}; {phrases.ranks(ran) if ran else 'no rank'} ran it."
        else:
            yield f"{what}."


def _ran(record: RankRecord, site: Site) -> bool:
    lines = record.executed.lines if record.executed is not None else ()
    return any((line.site.file, line.site.line) == (site.file, site.line) for line in lines)


def _of_stop(stop: Stop) -> Draft:
    """One that is in communication which ddpnb does not see may wait for another one that is blocked."""
    standings, away = stop.standings, stop.gone
    frozen = [rank for rank in away if standings[rank].state is RankState.UNRESPONSIVE]
    known = frozen or [rank for rank in away if not standings[rank].function]
    found = _draft(stop, RANK_FROZEN if frozen else BLOCKED_ELSEWHERE, known or list(away))
    others = [rank for rank in phrases.besides(away, found.culprits) if standings[rank].function]
    return replace(found, evidence=(*found.evidence, *(_within(rank, standings[rank]) for rank in others[:_NAMED])))


def _stacks(standings: Mapping[int, Standing], ranks: Iterable[int]) -> tuple[str, ...]:
    """The stacks of ranks, those that are equal once: only they say what a rank does before its first call."""
    stacks = {rank: frames_of(standings[rank].record)[-_FRAMES:] for rank in ranks}
    words = {rank: {"stack": " > ".join(map(_frame, frames))} for rank, frames in stacks.items() if len(frames) > 1}
    return alike("Stack of {who}: {stack}.", words)[:_STACKS]


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
    seen = waits_on.startswith(LOCAL) or awaits_key(standing)
    return bool(standing.record.unseen) and not standing.function and not seen


_SLEEP, _FILE_LOCK = "sleep()", "a file lock"
_ASKS = "The rank asks for input, which nobody gives: take it from an argument or a file."
#: How the wait of a process begins in words, and what to do about it.
_RESOLVE = (
    (_FILE_LOCK, "Find the process that holds the file lock (lslocks), and why it does not release it."),
    (
        "a lock",
        "Find the thread that should release the lock, or fill the queue, and why it does not: py-spy dump --pid PID shows "
        "all threads.",
    ),
    ("a child process", "Look at what the child process does (py-spy dump --pid PID): the rank waits for its end."),
    (_SLEEP, "Look at why it sleeps there: a loop may ask again and again for what does not happen."),
    ("a signal", "Find out which process is to send the signal, and why it does not."),
    ("a connection", "Look at the other end of the connection: whether it runs, and its address and port."),
    (
        "a file or socket",
        "Find out which process is to answer there, and why it does not. A timeout= turns such a wait into an error.",
    ),
    (
        "a socket",
        "Look at the process at the other end, which does not answer. A timeout= turns such a wait into an error.",
    ),
    ("read() on /dev/tty", _ASKS),
    ("read()", "Find out who is to write there, and why nothing comes. A timeout= turns such a wait into an error."),
    ("write()", "Find out who is to read there, and why it does not: a full pipe blocks who writes."),
)


def _resolve(reason: str) -> str:
    """What to do about a wait, by what the process waits for."""
    if "(standard input)" in reason:
        return _ASKS
    known = (remedy for begins, remedy in _RESOLVE if reason.startswith(begins))
    return next(known, "Look at the statement at that line: what it waits for was not recorded.")


def _waits_on(process: Process) -> str:
    """What a process waits for in the kernel."""
    return process.waits_on.replace("a socket (socket)", "a socket")


def _blocked_in(standing: Standing) -> str:
    """The call in which a rank is blocked, or the phase; empty where neither is known."""
    call, event = standing.call, standing.event
    return phrases.in_call(call) if call is not None else event.title if event is not None else ""


def _inactive(standings: Mapping[int, Standing], *, all_stopped: bool) -> Iterator[str]:
    """Since when ranks have been inactive, what they wait for, and why they can never continue."""
    for text, said in (
        ("{who} [was|were] idle{at}.", lambda one: one.reported),
        ("{who} [has|have] been inactive for {seconds} s{at}.", lambda one: not one.reported and one.idle_s >= 1),
        ("{who} [is|are] blocked{at}.", lambda one: not one.reported and one.idle_s < 1),
    ):
        seconds = {rank: f"{one.idle_s:.0f}" for rank, one in standings.items() if said(one)}
        yield from alike(
            text, {rank: {"seconds": many, "at": phrases.at(standings[rank].site)} for rank, many in seconds.items()}
        )
    processes = {rank: one.record.process for rank, one in standings.items()}
    stopped = [rank for rank, process in processes.items() if process.activity == "stopped"]
    if stopped and not all_stopped:
        yield say("{who} [is|are] stopped (SIGSTOP).", stopped)
    unanswered = [
        rank for rank, one in standings.items() if not processes[rank].answered and one.state is RankState.BLOCKED
    ]
    if unanswered:
        yield say("{who} [is|are] unresponsive too: [its stack was|their stacks were] read from outside.", unanswered)
    never = {rank: one.never for rank, one in standings.items() if one.never}
    for ranks in split({rank: _PROCESS.sub("process", reason) for rank, reason in never.items()}).sides:
        others = [f"rank {rank}: {found[0]}" for rank in ranks[1:] if (found := _PROCESS.search(never[rank]))]
        alike_ = f" ({'; '.join(others)})" if others else ""
        yield say("{who} can never continue: {why}{others}.", ranks, why=never[ranks[0]], others=alike_)
    waits_on = {rank: what for rank, process in processes.items() if (what := _waits_on(process))}
    keys = {rank for rank, one in standings.items() if awaits_key(one)}
    for text, said in (
        ("{who} [is|are] in {what}.", lambda rank: waits_on[rank] == _SLEEP),
        ("{who} [waits|wait] for {what}.", lambda rank: rank in keys),
        ("{who} [waits|wait] for {what} in the kernel.", lambda rank: waits_on[rank] != _SLEEP and rank not in keys),
    ):
        yield from alike(text, {rank: {"what": what} for rank, what in waits_on.items() if said(rank)})


def _draft(stop: Stop, kind: FindingType, culprits: list[int]) -> Draft:
    standings, waiting = stop.standings, stop.waiting
    processes = [standings[rank].record.process for rank in culprits]
    stopped = [process.activity == "stopped" for process in processes]
    reason = ""
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
        reasons = {_waits_on(process) for process in processes}
        reason = reasons.pop() if len(reasons) == 1 else ""
        never = all(standings[rank].never for rank in culprits)
        remedy = (
            _resolve(reason)
            if not never or not reason.startswith(_FILE_LOCK)
            else "Release the file lock before that line."
        )
        reason = f", {'in' if reason == _SLEEP else 'waiting for'} {reason}" if reason else ""
        what = f"{phrases.verb(culprits, 'is', 'are')} {outside(standings[rank] for rank in culprits)}"
        if all(standings[rank].function for rank in culprits):
            remedy += " It may be that another member has not made this call: look at where the others are."
    evidence = [*_inactive({rank: standings[rank] for rank in culprits[:_NAMED]}, all_stopped=all(stopped))]
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
        evidence.append(say("{who} [has|have] not called init_process_group in this run.", early))
        evidence += _stacks(standings, early)
        remedy += " Before the start-up it is most often a lock file that a killed process left behind, a compiler or a download."
    evidence += alike(
        "{who} [is|are] blocked in {what}{at}.",
        {
            rank: {"what": what_, "at": phrases.at(standings[rank].site)}
            for rank in waiting
            if (what_ := _blocked_in(standings[rank]))
        },
    )
    sites = {standings[rank].site for rank in culprits}
    at = phrases.at(sites.pop()) if len(sites) == 1 else ""
    who, waits = phrases.ranks(culprits, True), waited_for(culprits, waiting)
    said = (f"{reason}{at}{waits}", f"{reason}{at}", at, "")
    return Draft(
        title(*(f"{who} {what}{rest}." for rest in said)),
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
