"""From a Recording to the diagnosis: the root cause first, secondary failures left out."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.errors import UsageError
from ddpnb.recording import arguments, checkpoints, phrases
from ddpnb.recording.calls import CallState, Site
from ddpnb.recording.ending import UNKNOWN_SIGNAL
from ddpnb.recording.events.runs import FaultTriggered
from ddpnb.recording.facts.patience import PATIENCE
from ddpnb.recording.facts.snapshot import ONLY_PROVEN, Snapshot
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.findings import Diagnosis, Finding, Outcome
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.split import by_value
from ddpnb.rules import command_status, engine, log_lines, reported, unproven
from ddpnb.rules.causes import frameworks
from ddpnb.rules.hosts import with_hosts
from ddpnb.rules.located import located
from ddpnb.rules.outcome import outcome_of
from ddpnb.rules.settled import is_settled
from ddpnb.texts import shortened

_FAULTS, _FAULT = 4, 200  # that are named, and characters of each
_WAITS = (RankState.WAITING, RankState.BLOCKED, RankState.STARTING, RankState.CREATING_GROUP)
_PLACED = 4  # ranks whose place in a mesh is named


def diagnose(recording: Recording, patience: float = PATIENCE, *, end_after_patience: bool = False) -> Diagnosis:
    """What is wrong, which ranks are at fault, and the evidence for it.

    What follows only from how long ranks have been blocked is no proof, since they may continue: it is a warning.

    Args:
        recording: of ``World.snapshot()``, of a run, loaded from a file, or written by hand.
        patience: seconds that a rank may be blocked outside any collective without computing.
        end_after_patience: such a finding is an error, and the outcome a hang.

    Returns:
        The findings, root cause first.

    Raises:
        UsageError: ``recording`` is no Recording, or ``patience`` is no number of seconds.

    Example:
        >>> ddpnb.diagnose(ddpnb.load("hang.ddpnb")).outcome
        'hang'
    """
    if not isinstance(recording, Recording):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(
            f"diagnose() takes a Recording, not {arguments.short(recording)}.", "world.snapshot() takes one."
        )
    if patience != float("inf"):
        arguments.seconds("patience", patience, least=0)
    if recording.command == 0:
        given = replace(recording, command=None)
        decided, as_it_was = (
            diagnose(one, patience, end_after_patience=end_after_patience)
            for one in (command_status.as_finished(given), given)
        )
        exit_codes = {rank: _exit_code(record) for rank, record in sorted(recording.ranks.items())}
        return replace(command_status.of_success(decided, as_it_was, given), exit_codes=exit_codes)
    snap = Snapshot.of(recording, patience)
    found = _diagnosis(snap, patience)
    running = found.errors and snap.observed and None in found.exit_codes.values()
    if end_after_patience or not running or not snap.timed:
        return found
    return unproven.warned(snap, found, _diagnosis(snap.only_proven(), ONLY_PROVEN))


def _diagnosis(snap: Snapshot, patience: float) -> Diagnosis:
    recording, standings = snap.recording, snap.standings
    findings = [_finished(snap, finding) for finding in engine.ask(snap, engine.rules())]
    errors = [finding for finding in findings if finding.severity == "error"]
    outcome = outcome_of(snap, errors)
    findings = _with_checkpoints(recording, _with_faults(recording, findings), outcome)
    findings = [log_lines.in_the_log(snap.given or recording, finding) for finding in findings]
    ended = snap.over or recording.command is not None
    given = snap.given or recording
    return Diagnosis(
        outcome=outcome,
        findings=tuple(findings),
        settled=ended or (bool(errors) and not snap.observed) or is_settled(standings, snap.stuck, errors, patience),
        world_size=recording.world_size,
        exit_codes={
            **{rank: _exit_code(record) for rank, record in sorted(given.ranks.items())},
            **reported.statuses(given),
        },
        notes=reported.open_questions(given, errors),
        reported=recording.report is not None,
        order=log_lines.order_of_events(given),
        outside=given.report.outside if given.report is not None else "",
        answer=log_lines.answer(given, [finding for finding in findings if finding.severity == "error"]),
    )


def _finished(snap: Snapshot, finding: Finding) -> Finding:
    """A finding with what is said of all of them: where ways part, the framework's words, places in the mesh, gaps."""
    if any(finding is failure for failure in snap.failures):
        finding = frameworks.in_terms(snap.recording, snap.standings, finding)
    finding = with_hosts(snap.standings, located(snap.recording, finding))
    finding = _with_blocked(snap, finding.quoted(snap.recording.sources, snap.recording.edited))
    return _with_gaps(snap.recording, _with_coordinates(snap.recording, finding))


def _with_blocked(snap: Snapshot, finding: Finding) -> Finding:
    """Which of its ranks wait in a call at one of its places."""

    def waits(one: Standing, site: Site) -> bool:
        last = one.record.calls[-1] if one.record.calls else None
        stopped = last is not None and last.state is CallState.FENCED and last.site == site  # the fence ended its wait
        return stopped or (one.state in _WAITS and one.site == site)

    known = snap.standings
    return replace(finding, blocked=frozenset(r for r, site in finding.where if r in known and waits(known[r], site)))


def _with_gaps(recording: Recording, finding: Finding) -> Finding:
    """An error says what was not recorded of the ranks that it names."""
    ranks = sorted(finding.concerned & set(recording.ranks)) if finding.severity == "error" else ()
    gaps = tuple(dict.fromkeys(gap for rank in ranks for gap in recording.ranks[rank].gaps))
    return replace(finding, evidence=(*finding.evidence, *gaps)) if gaps else finding


def _with_coordinates(recording: Recording, finding: Finding) -> Finding:
    """An error says where in the mesh its ranks are, which say more to a reader than their numbers."""
    ranks = finding.culprits or tuple(rank for side in finding.sides for rank in side)
    known = [rank for rank in ranks[:_PLACED] if rank in recording.ranks and recording.ranks[rank].coordinate]
    if finding.severity != "error" or not known:
        return finding
    named = "; ".join(f"rank {rank} is at {recording.ranks[rank].coordinate}" for rank in known)
    return replace(finding, evidence=(*finding.evidence, f"In the mesh, {named}."))


def _with_checkpoints(recording: Recording, findings: list[Finding], outcome: Outcome) -> list[Finding]:
    """The root cause of a hang or a crash says after which numbered checkpoint each rank stopped."""
    text = checkpoints.last_passed(recording.ranks) if outcome in ("hang", "crash") else ""
    first = next((place for place, finding in enumerate(findings) if finding.severity == "error"), None)
    if not text or first is None:
        return findings
    root = replace(findings[first], evidence=(*findings[first].evidence, text))
    return [*findings[:first], root, *findings[first + 1 :]]


def _with_faults(recording: Recording, findings: list[Finding]) -> list[Finding]:
    """The first finding begins with the faults that ddpnb itself injected into the run."""
    found = by_value(
        (rank, fault)
        for rank, record in sorted(recording.ranks.items())
        for fault in dict.fromkeys(event.fault for event in record.events(FaultTriggered))
    )
    says = [
        f"ddpnb injected `{shortened(fault.replace('`', ''), _FAULT)}` on {phrases.ranks(ranks)} in this run."
        for fault, ranks in list(found.items())[:_FAULTS]
    ]
    if not says or not findings:
        return findings
    return [replace(findings[0], evidence=(*says, *findings[0].evidence)), *findings[1:]]


def _exit_code(record: RankRecord) -> int | None:
    ending = record.ending
    if ending is None or ending.how == "ended" or ending.code == UNKNOWN_SIGNAL:
        return None
    return ending.code
