"""DDP707 in the place of a failure or a wait: the script started its ranks itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ddpnb.facts.snapshot import Snapshot
from ddpnb.facts.stacks import frames_of
from ddpnb.model.findings import Finding
from ddpnb.model.recording import RankRecord
from ddpnb.rules.causes.blocked import blocked_alone
from ddpnb.rules.environment.own_ranks import own_ranks
from ddpnb.rules.rule import Draft, explained, family, findings_of

_JOINING = re.compile(r"EADDRINUSE|address already in use|init_process_group|rendezvous", re.IGNORECASE)
_PROCESSES = re.compile(r"/multiprocessing/|/subprocess\.py$")
_NEAR = 6  # of the frames of a rank


@family(refines=("DDP312", "DDP313"), failure=True, gives=("DDP707",))
def own_ranks_failed(snap: Snapshot) -> Iterable[Draft]:
    """The processes of several ranks claim one address, or a rank waits for the processes that it started as ranks."""
    cause = next(iter(findings_of(snap.recording, own_ranks)), None)
    if cause is None:
        return
    for finding in (*snap.found("DDP312"), *blocked_alone(snap, "DDP313")):
        records = snap.ranks.among(finding.culprits).values()
        joins = finding.code == "DDP312" and all(_JOINING.search(_said(record)) for record in records)
        waits = finding.code == "DDP313" and any(map(_waits_for_child, records))
        if (joins or waits) and set(finding.culprits) <= set(cause.culprits):
            yield _in_place_of(finding, cause)


def _in_place_of(finding: Finding, cause: Finding) -> Draft:
    return explained(
        finding,
        cause,
        type=replace(cause.type, after_patience=finding.type.after_patience),
        severity="error",
        waiting=finding.waiting,
        evidence=(*cause.evidence, *finding.evidence),
        tensors=finding.tensors,
    )


def _said(record: RankRecord) -> str:
    message = record.ending.message if record.ending is not None else ""
    return (message or record.output)[-20_000:]


def _waits_for_child(record: RankRecord) -> bool:
    inside = any(_PROCESSES.search(frame.file) for frame in frames_of(record)[-_NEAR:])
    return inside or record.process.waits_on == "a child process"
