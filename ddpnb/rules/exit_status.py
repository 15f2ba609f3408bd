"""Processes that failed but exited with status 0."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddpnb.recording.calls import CallState, Site
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.standings import last_site
from ddpnb.recording.facts.tracebacks import user_line
from ddpnb.recording.findings import FindingType
from ddpnb.recording.recording import RankRecord
from ddpnb.rules.rule import Draft, each, family, say
from ddpnb.texts import shortened

EXIT_CODE_MASKED = FindingType("DDP701", "exit-code-masked")


_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):$", re.MULTILINE)
# What a destructor or a callback at exit raises is no failure of the program: Python prints that it is ignored.
_IGNORED = re.compile(
    r"^Exception ignored [^\n]*\n(?:Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)*)?[^\n]*\n?", re.MULTILINE
)
_OTHERWHERE = re.compile(r"^(Exception in thread|Process \w+-\d+:)", re.MULTILINE)


@family(EXIT_CODE_MASKED, needs=())
def exit_status(snap: Snapshot) -> Iterable[Draft]:
    """A launcher counts what failed as success."""
    looks = (_printed_failure, _left_by_force, _became_zero)
    return [draft for look in looks if (draft := look(snap)) is not None][:1]


def _printed_failure(snap: Snapshot) -> Draft | None:
    """A rank exits with status 0 right after printing a traceback."""
    failed = snap.ranks.of(_last_error)
    if not failed:
        return None
    first = next(iter(failed.values()))[1].split(":")[0] or "a traceback"
    return Draft(
        say("{who} failed but exited with status 0, after {first}.", failed, first=first),
        tuple(failed),
        "Let the exception end the process (or call sys.exit(1) after printing it); join threads and child processes and "
        "check how they ended. A launcher detects a failure by the exit status only.",
        failed.of(lambda found: found[0]),
        evidence=each(
            failed,
            lambda rank: f"Rank {rank} exited with status 0; the last error that it printed: {failed[rank][1]}",
        ),
        certainty="likely",
    )


def _last_error(record: RankRecord) -> tuple[Site, str] | None:
    """The place and the last line of the traceback that a rank printed before it exited with status 0, if it did not continue."""
    if record.ending is None or not record.ending.well or record.ending.how == "died":
        return None
    output = _IGNORED.sub("", record.output.replace("\r", ""))
    starts = [match.start() for match in _TRACEBACK.finditer(output)]
    if not starts:
        return None
    told = output[starts[-1] :].splitlines()
    end = next((n for n, line in enumerate(told[1:], 1) if line and not line.startswith(" ")), len(told) - 1)
    after = [line for line in told[end + 1 :] if line.strip()]
    if not _OTHERWHERE.search(output[max(0, starts[-1] - 200) : starts[-1]]) and len(after) > 1:
        return None  # the script continued after it
    return user_line("\n".join(told[: end + 1])), shortened(told[end], 200)


def _left_by_force(snap: Snapshot) -> Draft | None:
    """All processes exit with status 0, some of them inside a call that the others did not reach."""
    if not all(left_quietly(record) for record in snap.ranks.values()):
        return None
    last = snap.ranks.of(lambda record: next((call for call in reversed(record.calls) if call.seq), None))
    lost = last.of(lambda call: call if call.state is not CallState.COMPLETED else None)
    reached = max((call.seq for call in lost.values()), default=0)
    first = tuple(rank for rank, call in last.items() if call.seq < reached)
    if not first:
        return None
    return Draft(
        say("{who} exited with status 0 in the middle of the run.", first),
        first,
        "Exit with a non-zero status when training failed: no os._exit(0) or sys.exit(0) in a finally.",
        snap.ranks.among(first).of(last_site),
        evidence=each(lost, lambda rank: f"Rank {rank} was in {lost[rank].title} then, and exited with status 0 too."),
    )


def _became_zero(snap: Snapshot) -> Draft | None:
    """A number that the system cuts to 0 was to say that the program failed."""
    cut = snap.ranks.of(lambda record: e if (e := record.ending) is not None and e.asked and not e.code else None)
    if not cut:
        return None
    asked = next(iter(cut.values())).asked
    return Draft(
        say(
            "{who} exited with status 0 although the code was {asked}: the system keeps one byte of it.",
            cut,
            asked=asked,
        ),
        tuple(cut),
        "Exit with a status between 1 and 255 if this was a failure: a launcher counts 0 as success.",
        snap.ranks.among(cut).of(last_site),
        evidence=each(cut, lambda rank: f"Rank {rank} {cut[rank]}."),
        severity="warning",
    )


def left_quietly(record: RankRecord) -> bool:
    """Whether a process exited with status 0 before the script ended."""
    return record.ending is not None and record.ending.how == "died" and record.ending.code == 0
