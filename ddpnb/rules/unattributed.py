"""Of a report: errors and ends of processes of which no file says which rank they are."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from ddpnb.facts.before_the_end import stopped_by_signal
from ddpnb.model import phrases
from ddpnb.model.calls import CallState
from ddpnb.model.ending import Ending
from ddpnb.model.findings import Finding
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.rules.causes.exits import HOST_MEMORY, LESS_HOST_MEMORY
from ddpnb.rules.finding_types import type_of
from ddpnb.rules.hangs.endings import RANK_DEAD, RANK_RAISED, is_consequence
from ddpnb.rules.hangs.workers import kills_for_memory
from ddpnb.rules.messages.explain import explain, explain_text
from ddpnb.rules.messages.explained import Explained
from ddpnb.texts import shortened

_OF_TIME_OUTS = ("DDP301", "DDP313")  # what a time-out's own text says: the least of what is known
_LONGEST = 200  # characters of a message in a sentence
LOOK_AT_FIRST = (
    "Look at the output of the rank that ended first (its exit status, a traceback, the kernel's log), and at the network "
    "(NCCL_DEBUG=INFO, the counters of the interface)."
)
_FIRST = (
    "Start with this error: those of the other ranks follow from it. Give each rank a log of its own (torchrun --log-dir DIR "
    "--redirects 3) to see whose it is."
)


def find(recording: Recording, errors: Sequence[Finding]) -> list[Finding]:
    """The causes of a failure that unknown ranks wrote, the most telling first.

    The rank for which the others waited, and of which nothing else is known, may be the one: that is likely at most.

    Args:
        recording: of a report.
        errors: what is known of ranks. Beside one that is proven, errors of unknown ranks follow from it.
    """
    report = recording.report
    if report is None or any(finding.certainty == "proven" for finding in errors):
        return []
    known = {finding.code for finding in errors}
    silent = errors[0] if errors else None
    explained = {one.code: (one, place) for one, place in _explained(report.messages, report.endings)}
    causes = [
        _finding(one, place, silent)
        for code, (one, place) in explained.items()
        if code not in known and (code not in _OF_TIME_OUTS or not errors)
    ]
    return causes if causes or errors else _plain(recording, report.endings)


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


def _finding(explained: Explained, place: str, silent: Finding | None) -> Finding:
    named = explained.culprits or explained.missing
    where = f"It was raised{place}; it is not known" if place else "It is not known"
    said = () if named and not place else (f"{where} in which process{'' if place else ' it was raised'}.",)
    if silent is not None and silent.culprits and not named:
        ranks = phrases.ranks(silent.culprits)
        said = (*said, f"It is probably {ranks}, for which the others waited.", *silent.evidence)
    return Finding(
        type_of(explained.code),
        explained.summary,
        named or (silent.culprits if silent is not None else ()),
        silent.waiting if silent is not None else (),
        silent.collective if silent is not None else None,
        silent.where if silent is not None else (),
        (*explained.evidence, *said),
        explained.remedy,
        "error",
        explained.tensors,
        certainty="proven" if named else "likely",
        hint=explained.hint,
    )


def _plain(recording: Recording, endings: Sequence[Ending]) -> list[Finding]:
    """DDP311, DDP312 or DDP706: a process of an unknown rank failed, with an error of the user's own or a signal."""
    waits = any(call.state is CallState.WAITING for record in recording.ranks.values() for call in record.calls)
    failed = [
        ending
        for ending in endings
        if not ending.well
        and not stopped_by_signal(ending)
        and not (waits and ending.how == "died" and ending.code == -signal.SIGABRT)  # how the watchdog ends a rank
    ]
    if not failed:
        return []
    # A connection that was lost follows from the end of another.
    own = [ending for ending in failed if not is_consequence(RankRecord(0, ending=ending, reported=True))]
    if not own:
        return [_lost(failed[0])]
    first = own[0]
    message = shortened(first.message.strip().split("\n", 1)[0], _LONGEST)
    if first.how == "raised":
        kind, what = RANK_RAISED, f"raised {first.exception}" + (f": {message}" if message else "")
        remedy = _FIRST
    elif first.signal_name == "SIGKILL" and kills_for_memory(recording):
        kind, what, remedy = (
            HOST_MEMORY,
            "was killed by the kernel: the machine (or the container) ran out of memory",
            LESS_HOST_MEMORY,
        )
    else:
        kind, what, remedy = RANK_DEAD, phrases.ended(first), _FIRST
    evidence = ["The file does not say which rank it is."]
    if first.how in ("died", "ended") and message:
        evidence.append(phrases.sentence(f"The log says: {message}"))
    return [
        Finding(
            kind,
            phrases.sentence(f"A rank {what}{_place(first)}"),
            evidence=tuple(evidence),
            remedy=remedy,
            certainty="likely",
        )
    ]


def _lost(ending: Ending) -> Finding:
    return Finding(
        RANK_DEAD,
        f"A rank lost the connection to another one{_place(ending)}: that one ended, or the network between them failed.",
        evidence=(
            phrases.sentence(f"It raised {shortened(str(ending), _LONGEST)}"),
            "The file does not say which rank it is.",
        ),
        remedy=LOOK_AT_FIRST,
        certainty="likely",
    )


def stopped(endings: Sequence[Ending]) -> list[Finding]:
    """DDP311: a launcher ended processes, and nothing says why."""
    if not any(ending.code == -signal.SIGTERM for ending in endings):
        return []
    return [
        Finding(
            RANK_DEAD,
            "A launcher ended its processes (SIGTERM), as it does after the failure of one: these files do not show which.",
            remedy=LOOK_AT_FIRST,
            certainty="likely",
        )
    ]
