"""How a run ended, from its Recording and the errors that were found."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.recording.calls import CallState
from ddpnb.recording.collectives import collective_of
from ddpnb.recording.facts.endings import is_fence_stop
from ddpnb.recording.facts.mismatches import expected
from ddpnb.recording.facts.once import once
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.findings import Finding, Outcome
from ddpnb.recording.recording import Recording
from ddpnb.rules.exit_status import EXIT_CODE_MASKED

# Of a report: what ended the ranks was a time-out.
_WAITS = ("DDP102", "DDP104", "DDP301", "DDP313", "DDP318")
_SILENT = ("DDP316", "DDP4")  # tensors are not what they should be, and nothing stops because of it
_ENDS = ("DDP311", "DDP312", "DDP706")  # of a report: a process ended, which no file may name


def outcome_of(snap: Snapshot, errors: Sequence[Finding]) -> Outcome:
    """How the run ended."""
    recording = snap.recording
    outcome = _of_ranks(recording, errors)
    if errors and outcome == "hang" and not snap.stuck and all(finding.code.startswith(_SILENT) for finding in errors):
        return "divergence"  # of ranks that still train
    report = recording.report
    if report is None:
        return outcome
    if not errors and (report.messages or report.outside):
        return "interrupted"
    if errors and errors[0].code in _WAITS:
        return "hang"
    if errors and outcome == "hang" and not errors[0].type.mismatch:
        return "crash" if errors[0].code in _ENDS or not errors[0].waiting else "hang"
    if outcome == "divergence":  # no rank is known to have continued
        return "hang" if errors[0].waiting else "crash"
    return outcome


def _of_ranks(recording: Recording, errors: Sequence[Finding]) -> Outcome:
    own_failure = any(
        r.ending is not None and not r.ending.well and not is_fence_stop(r.ending) for r in recording.ranks.values()
    )
    # A fence stop counts even if one rank swallowed it; so does a mismatch that made ranks fail.
    fenced = is_refused(recording)
    died = any(r.ending is not None and r.ending.how == "died" and r.ending.code for r in recording.ranks.values())
    mismatched = bool(errors) and errors[0].type.mismatch and not died
    if own_failure and not mismatched and not (fenced and errors and errors[0].code != "DDP312"):
        return "crash"
    if fenced or (mismatched and own_failure):
        return "hang"
    complete = all(r.ending is not None and r.ending.well for r in recording.ranks.values())
    if complete and any(finding.type == EXIT_CODE_MASKED for finding in errors):
        return "crash"
    if errors and complete:
        return "divergence"
    return "hang" if errors else "ok"


@once
def is_refused(recording: Recording) -> bool:
    """Whether the fence has refused a call of these ranks, and the program did not expect that."""
    return any(is_fence_stop(record.ending) for record in recording.ranks.values()) or any(
        call.state is CallState.FENCED and not expected(recording, collective_of(recording, call))
        for record in recording.ranks.values()
        for call in record.calls
    )
