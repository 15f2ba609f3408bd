"""What only patience supports: ranks that have been blocked for long, and may continue. That is a warning.

A finding is proven if the ranks that it names can never continue, whatever time passes. So where a fact depends on the given
patience, the rules are asked once more, with one without end. What only the first answer holds is not proven.
"""

from __future__ import annotations

from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stacks import below_user
from ddpnb.recording.facts.standings import standings, with_polls
from ddpnb.recording.findings import Certainty, Diagnosis, Finding
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.rules.hangs.blocked import may_be_unseen
from ddpnb.rules.outcome import outcome_of
from ddpnb.rules.rule import say, waited_for

_ELSEWHERE = (RankState.BLOCKED, RankState.UNRESPONSIVE)


def warned(snap: Snapshot, found: Diagnosis, proven: Diagnosis) -> Diagnosis:
    """The diagnosis in which errors that are not proven are warnings.

    Args:
        snap: what both are of.
        found: with patience.
        proven: with ``Snapshot.only_proven``.
    """
    if proven.settled and proven.errors:
        return proven
    known = set(map(_what, proven.errors))
    findings = [
        finding
        if finding.severity != "error" or _what(finding) in known
        else replace(finding, severity="warning", certainty=_less_than_proven(finding))
        for finding in found.findings
    ]
    held = set(map(_what, findings))
    findings = [*(error for error in proven.errors if _what(error) not in held), *findings]
    errors = [finding for finding in findings if finding.severity == "error"]
    return replace(
        found,
        outcome=outcome_of(snap, errors),
        findings=tuple(findings),
        settled=found.settled if errors else proven.settled,
    )


def _less_than_proven(finding: Finding) -> Certainty:
    return "likely" if finding.certainty == "likely" and finding.type.after_patience else "timed"


def _what(finding: Finding) -> tuple[object, ...]:
    return finding.code, finding.culprits, finding.sides, finding.waiting


def sentence(recording: Recording, finding: Finding) -> str:
    """An unproven finding in a line, for while the ranks still run.

    Example:
        >>> sentence(recording, finding)
        'rank 1 has waited 10 s in subprocess.run (a child process) at data.py:30; ranks 0 and 2 wait for it; not proven'
    """
    ranks = list(finding.culprits)
    standing = with_polls(recording, standings(recording), 0.0)
    polls = [rank for rank in sorted(finding.concerned) if rank in standing and standing[rank].polls]
    if polls:
        asking = ", ".join(f"rank {rank}{phrases.at(standing[rank].site)}" for rank in polls[:4])
        return f"{finding.summary.rstrip('.')} ({asking}: asked with is_completed()); not proven"
    if not ranks or any(rank not in standing or standing[rank].state not in _ELSEWHERE for rank in ranks):
        return f"{finding.summary.rstrip('.')}; not proven"
    first = standing[ranks[0]]
    within = _called(first.record)
    waits_on = first.record.process.waits_on
    what = f" in {within}" + (f" ({waits_on})" if waits_on else "") if within else f" for {waits_on}" * bool(waits_on)
    if first.record.process.activity == "stopped":
        what = ", stopped (SIGSTOP)"
    at = phrases.at(first.site) if first.site != NO_SITE and len({standing[rank].site for rank in ranks}) == 1 else ""
    what += f" (it may be in {', '.join(first.record.unseen)})" if may_be_unseen(first) else ""
    idle_s = min(standing[rank].idle_s for rank in ranks)
    text = "{ranks} [has|have] waited {seconds:.0f} s{what}{at}{others}; not proven"
    others = waited_for(ranks, finding.waiting)
    return say(text, ranks, ranks=tuple(ranks), seconds=idle_s, what=what, at=at, others=others)


def _called(record: RankRecord) -> str:
    """The function that the rank's innermost line of the user's code called, such as ``subprocess.run``."""
    stack = record.main_stack
    frames = [frame for frame in stack.frames if not frame.own] if stack is not None else []
    below = below_user(frames)
    if not below or len(below) == len(frames):
        return ""
    called = below[0]
    folder, _, file = called.file.replace("\\", "/").rpartition("/")
    module = file.removesuffix(".py")
    module = folder.rpartition("/")[2] if module == "__init__" else module
    return f"{module}.{called.function.rpartition('.')[2]}"
