"""What it says of the ends of ranks that the command which started them has succeeded."""

from __future__ import annotations

import signal
from dataclasses import replace

from ddpnb.recording.ending import Ending
from ddpnb.recording.facts.endings import is_fence_stop
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.recording.recording import Recording
from ddpnb.rules.exit_status import EXIT_CODE_MASKED

_BY_OTHERS = (-signal.SIGTERM, -signal.SIGKILL)


def as_finished(recording: Recording) -> Recording:
    """The same, where ranks count as finished, however they ended.

    A parent ends ranks once it has their results, and a launcher starts failed ones again: both know what it means. Where one
    has failed, the others that were recorded then, before their end, count as finished too.
    """
    endings = {rank: record.ending for rank, record in recording.ranks.items()}
    failed = {rank: one for rank, one in endings.items() if one and not one.well and not is_fence_stop(one)}
    if not failed:
        return recording
    finished = {
        rank: replace(recording.ranks[rank], ending=replace(one or Ending("finished"), how="finished", code=0))
        for rank, one in endings.items()
        if one is None or rank in failed
    }
    return replace(recording, ranks={**recording.ranks, **finished})


def of_success(finished: Diagnosis, as_it_was: Diagnosis, recording: Recording) -> Diagnosis:
    """The diagnosis of ranks whose command succeeded: how they ended is a note at most.

    Args:
        finished: the diagnosis of these ranks where all of them have finished.
        as_it_was: that of the ranks as they ended.
        recording: of the ranks as they ended.
    """
    known = {finding.code for finding in finished.findings}
    notes = [
        replace(finding, severity="note", summary=f"The command succeeded, although: {finding.summary}", remedy="")
        for finding in as_it_was.errors
        if finding.code not in known and not _is_meant(finding, recording)
    ]
    findings = [
        replace(finding, severity="note") if finding.type == EXIT_CODE_MASKED else finding
        for finding in finished.findings
    ]
    errors = any(finding.severity == "error" for finding in findings)
    outcome = finished.outcome if finished.outcome != "crash" else "divergence" if errors else "ok"
    return replace(finished, outcome=outcome, findings=(*findings, *notes), settled=True)


def _is_meant(finding: Finding, recording: Recording) -> bool:
    """Whether somebody ended the ranks by a signal, and no more is known."""
    endings = [recording.ranks[rank].ending for rank in finding.culprits]
    return finding.code == "DDP311" and all(ending is not None and ending.code in _BY_OTHERS for ending in endings)
