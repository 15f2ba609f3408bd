"""What only reports need: causes that no file gives to a rank, the last checkpoints, and what remains open."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence

from ddpnb.recording import phrases
from ddpnb.recording.calls import CallState
from ddpnb.recording.ending import Ending
from ddpnb.recording.facts.before_the_end import interrupted_while_waiting, stopped_by_signal
from ddpnb.recording.facts.children import kills_for_memory
from ddpnb.recording.facts.endings import is_consequence
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.findings import Finding
from ddpnb.recording.messages.explain import explain, explain_text
from ddpnb.recording.messages.explained import Explained
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.rules.causes.exits import LESS_HOST_MEMORY
from ddpnb.rules.finding_types import type_of
from ddpnb.rules.hangs.endings import LOOK_AT_FIRST, RANK_DEAD, RANK_RAISED
from ddpnb.rules.rule import Draft, family
from ddpnb.texts import shortened

_OF_TIME_OUTS = ("DDP301", "DDP313")  # what a time-out's own text says: the least of what is known
_LONGEST = 200  # characters of a message in a sentence
_FIRST = (
    "Start with this error: those of the other ranks follow from it. Give each rank a log of its own (torchrun --log-dir DIR "
    "--redirects 3) to see whose it is."
)


@family(failure=True, cause=True, needs=())
def unattributed(snap: Snapshot) -> Iterable[Draft]:
    """The causes of a failure that unknown ranks wrote, the most telling first.

    The rank for which the others waited, and of which nothing else is known, may be the one: that is likely at most. Beside a
    finding that is proven, errors of unknown ranks follow from it.
    """
    report = snap.recording.report
    errors = [finding for finding in snap.findings if finding.severity == "error"]
    if report is None or any(finding.certainty == "proven" for finding in errors):
        return
    known = {finding.code for finding in errors}
    silent = errors[0] if errors else None
    explained = {one.code: (one, place) for one, place in _explained(report.messages, report.endings)}
    causes = [
        _cause(one, place, silent)
        for code, (one, place) in explained.items()
        if code not in known
        and not (errors and (code in _OF_TIME_OUTS or one.culprits == ()))  # it follows from another
    ]
    if not causes and not errors:
        causes = [one for one in [_plain(snap.recording, report.endings)] if one is not None]
    yield from causes


def _explained(messages: Sequence[str], endings: Sequence[Ending]) -> list[tuple[Explained, str]]:
    """What errors mean, and where they were raised: the last ones first."""
    found: list[tuple[Explained, str]] = []
    for ending in reversed(endings):
        if ending.how == "raised":
            one = explain(ending.message, ending.exception, frames=ending.frames, traceback=ending.traceback)
            found += [(one, _place(ending))] if one is not None else []
    found += [(one, "") for text in reversed(messages) for one in explain_text(text)]
    return found[::-1]


def _place(ending: Ending) -> str:
    frame = ending.innermost_user
    return phrases.at(frame.site) if frame is not None else ""


def _cause(explained: Explained, place: str, silent: Finding | None) -> Draft:
    named, sides = explained.culprits or explained.missing, explained.sides
    where = f"It was raised{place}; it is not known" if place else "It is not known"
    said = () if (named or sides) and not place else (f"{where} in which process{'' if place else ' it was raised'}.",)
    if silent is not None and silent.culprits and not named and not sides:
        ranks = phrases.ranks(silent.culprits)
        said = (*said, f"It is probably {ranks}, for which the others waited.", *silent.evidence)
    return Draft(
        explained.summary,
        named or (silent.culprits if silent is not None and not sides else ()),
        explained.remedy,
        waiting=silent.waiting if silent is not None and not sides else (),
        sides=sides,
        evidence=(*explained.evidence, *said),
        kind=type_of(explained.code),
        also=silent.where if silent is not None else (),
        collective=silent.collective if silent is not None else None,
        tensors=explained.tensors,
        certainty="proven" if named or sides else "likely",
        severity="error",
        hint=explained.hint,
    )


def _plain(recording: Recording, endings: Sequence[Ending]) -> Draft | None:
    """A process of an unknown rank failed, with an error of the user's own or a signal."""
    waits = any(call.state is CallState.WAITING for record in recording.ranks.values() for call in record.calls)
    failed = [
        ending
        for ending in endings
        if not ending.well
        and not stopped_by_signal(ending)
        and not (waits and ending.how == "died" and ending.code == -signal.SIGABRT)  # how the watchdog ends a rank
    ]
    if not failed:
        return None
    # A connection that was lost follows from the end of another.
    own = [ending for ending in failed if not is_consequence(RankRecord(0, ending=ending, reported=True))]
    first = own[0] if own else failed[0]
    message = shortened(first.message.strip().split("\n", 1)[0], _LONGEST)
    evidence = ["The file does not say which rank it is."]
    if not own:
        kind, remedy = RANK_DEAD, LOOK_AT_FIRST
        summary = f"A rank lost the connection to another one{_place(first)}: that one ended, or the network between them failed."
        evidence = [phrases.sentence(f"It raised {shortened(str(first), _LONGEST)}"), *evidence]
    elif first.how == "raised":
        kind, remedy = RANK_RAISED, _FIRST
        said = f": {message}" if message else ""
        summary = phrases.sentence(f"A rank raised {first.exception}{said}{_place(first)}")
    elif first.signal_name == "SIGKILL" and kills_for_memory(recording):
        kind, remedy = type_of("DDP706"), LESS_HOST_MEMORY
        summary = "A rank was killed by the kernel: the machine (or the container) ran out of memory."
    else:
        kind, remedy = RANK_DEAD, _FIRST
        summary = phrases.sentence(f"A rank {phrases.ended(first)}{_place(first)}")
    if own and first.how in ("died", "ended") and message:
        evidence.append(phrases.sentence(f"The log says: {message}"))
    return Draft(summary, remedy=remedy, evidence=evidence, kind=kind, certainty="likely")


def statuses(recording: Recording) -> dict[int, int]:
    """The exit statuses of ranks whose end is no cause of a failure."""
    said = recording.report.statuses if recording.report is not None else ()
    return {rank: code for rank, code in said if rank in recording.ranks and recording.ranks[rank].ending is None}


def _one_process(recording: Recording) -> list[str]:
    """Of the stacks of a single process: the call in which it waits, for others of which nothing is known."""
    standings = Snapshot(recording, 0).standings
    waits = [one for one in standings.values() if one.record.unrecorded and one.function]
    if len(waits) != 1 or sum(bool(record.stacks) for record in recording.ranks.values()) > 1:
        return []
    return [
        f"For whom this process waits in {waits[0].function}{phrases.at(waits[0].site)}: its stack alone does not show it. Collect the "
        "stacks of all ranks at one moment (py-spy dump --pid PID of each), or flight-recorder dumps (TORCH_FR_BUFFER_SIZE=2000)."
    ]


def open_questions(recording: Recording, errors: Sequence[Finding]) -> tuple[str, ...]:
    """What these files leave open, with what to collect next."""
    report = recording.report
    if report is None:
        return ()
    notes = list(report.unknown)
    if report.unordered:
        notes.append(
            f"Which of {phrases.ranks(report.unordered)} failed first: give logs whose lines state times and their zone "
            "(kubectl logs --timestamps, docker logs -t), or the launcher's."
        )
    if errors and interrupted_while_waiting(recording):
        notes.append("Whether the ranks would have continued: they were interrupted (KeyboardInterrupt).")
    notes += [f"The reason for this line: {shortened(text, 300)}" for text in report.messages if not explain_text(text)]
    notes += _one_process(recording) if not errors else []
    absent = [rank for rank, record in recording.ranks.items() if not record.mentioned]
    if not report.world_size_known and recording.world_size:
        notes.append(f"The number of ranks: it is at least {recording.world_size}.")
    if absent and not report.lines:  # else the answer to post says it
        notes.append(
            f"What {phrases.ranks(absent)} did: collect {phrases.verb(absent, 'its', 'their')} output (torchrun --log-dir DIR "
            "--redirects 3) and flight-recorder dump (TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1; in older "
            "versions of torch TORCH_NCCL_TRACE_BUFFER_SIZE=2000)."
        )
    calls = any(record.calls for record in recording.ranks.values())
    if errors and calls and not report.lines and not any(finding.where for finding in errors):
        notes.append(
            "The lines of the program: flight-recorder dumps contain them, and so do stacks (py-spy dump --pid PID while it "
            "hangs). `ddpnb run -- COMMAND` records both."
        )
    return tuple(notes)
