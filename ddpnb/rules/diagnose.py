"""From a Recording to the diagnosis: the root cause first, secondary failures left out."""

from __future__ import annotations

from dataclasses import replace

from ddpnb import arguments
from ddpnb.errors import UsageError
from ddpnb.facts.before_the_end import while_waiting
from ddpnb.facts.missing_ranks import MissingRanks
from ddpnb.facts.patience import PATIENCE
from ddpnb.facts.standings import Standing, standings, with_polls
from ddpnb.facts.waits import Wait, stuck, waits
from ddpnb.model import checkpoints
from ddpnb.model.calls import Call
from ddpnb.model.ending import UNKNOWN_SIGNAL
from ddpnb.model.events.startup import DestroyProcessGroup, InitProcessGroup, NewGroup
from ddpnb.model.findings import Diagnosis, Finding, Outcome
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.rules import command_status, reported, rules, unproven
from ddpnb.rules.causes import compiled, frameworks
from ddpnb.rules.causes.refine import refine
from ddpnb.rules.data.batches import uneven_shards
from ddpnb.rules.hangs import (
    blocked,
    endings,
    mismatch,
    missing_calls,
    never,
    new_groups,
    queued_calls,
    stacks_alone,
    startup,
    stores,
    stragglers,
    unreachable,
)
from ddpnb.rules.hangs.uneven_iterations import UNEVEN_ITERATIONS
from ddpnb.rules.located import located
from ddpnb.rules.outcome import outcome_of
from ddpnb.rules.settled import is_settled

# All ranks idle and none in a collective is far weaker evidence than a rank that others wait for: a download on
# every rank looks the same. It takes this many times the patience.
_NOBODY_WAITS = 3
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
    exit_codes = {rank: _exit_code(record) for rank, record in sorted(recording.ranks.items())}
    if recording.report is not None:
        return _of_report(recording, exit_codes, patience)
    if recording.command == 0:
        given = replace(recording, command=None)
        decided, as_it_was = (
            diagnose(one, patience, end_after_patience=end_after_patience)
            for one in (command_status.as_finished(given), given)
        )
        return replace(command_status.of_success(decided, as_it_was, given), exit_codes=exit_codes)
    standing, given = standings(recording), recording
    if (recording := endings.before_the_signal(given)) is not given:
        standing = standings(recording)
    if any(record.unrecorded for record in recording.ranks.values()):
        return _from_stacks(recording, standing, patience)
    standing = never.marked(recording, standing)
    found = _of_ranks(recording, standing, exit_codes, patience)
    if end_after_patience or not found.errors or None not in exit_codes.values():
        return found
    return unproven.warned(recording, found, _of_ranks(recording, standing, exit_codes, unproven.ONLY_PROVEN))


def _of_ranks(
    recording: Recording, standing: dict[int, Standing], exit_codes: dict[int, int | None], patience: float
) -> Diagnosis:
    """The diagnosis of ranks that are observed."""
    standing = with_polls(recording, standing, patience)
    if (cut_off := unreachable.find(recording, standing)) is not None:
        return _cut_off(recording, cut_off, exit_codes, patience)
    found_waits = waits(recording, standing, patience)
    held = stuck(found_waits, standing, patience)
    findings = [
        _with_gaps(
            recording, _with_coordinates(recording, queued_calls.with_hosts(standing, located(recording, finding)))
        )
        for finding in _findings(recording, standing, found_waits, held, patience)
    ]
    findings += mismatch.was_expected(recording)
    unknown = set(range(recording.world_size)) - set(standing)
    ended = not unknown and all(s.state is RankState.ENDED for s in standing.values())
    errors = [finding for finding in findings if finding.severity == "error"]
    outcome = outcome_of(recording, errors)
    return Diagnosis(
        outcome=outcome,
        findings=tuple(_with_checkpoints(recording, findings, outcome)),
        settled=ended or recording.command is not None or is_settled(standing, held, errors, patience),
        world_size=recording.world_size,
        exit_codes=exit_codes,
    )


def _cut_off(recording: Recording, cut_off: Finding, exit_codes: dict[int, int | None], patience: float) -> Diagnosis:
    """The diagnosis while a host does not answer: nothing can be proven of its ranks, nor of those that wait for them."""
    given_up = patience != unproven.ONLY_PROVEN
    findings = [*endings.find(recording, {}), *([cut_off] if given_up else [])]
    return Diagnosis(
        outcome=outcome_of(recording, findings),
        findings=tuple(findings),
        settled=given_up,
        world_size=recording.world_size,
        exit_codes=exit_codes,
    )


def _from_stacks(recording: Recording, standing: dict[int, Standing], patience: float) -> Diagnosis:
    """The diagnosis of ranks in which no recorder runs: the rules about calls and events would find that there are none."""
    failures = [replace(finding, certainty="likely") for finding in endings.find(recording, {})]
    findings = failures or stacks_alone.find(recording, standing, patience)
    errors = [finding for finding in findings if finding.severity == "error"]
    ended = len(standing) == recording.world_size and all(s.state is RankState.ENDED for s in standing.values())
    return Diagnosis(
        outcome=outcome_of(recording, errors),
        findings=tuple(findings),
        settled=ended or bool(errors),
        world_size=recording.world_size,
        exit_codes={rank: _exit_code(one.record) for rank, one in sorted(standing.items())},
    )


def _of_report(recording: Recording, exit_codes: dict[int, int | None], patience: float) -> Diagnosis:
    """The diagnosis of logs and dumps: by the same rules, of the moment before time-outs ended the ranks."""
    waiting = while_waiting(recording)
    standing = standings(waiting)
    found_waits = waits(waiting, standing, patience)
    held = stuck(found_waits, standing, patience)
    findings = [
        reported.as_certain(waiting, finding) for finding in _findings(waiting, standing, found_waits, held, patience)
    ]
    errors = [finding for finding in findings if finding.severity == "error"]
    findings = [*reported.find(waiting, standing, errors), *findings]
    if not any(finding.severity == "error" for finding in findings):
        alone = endings.find(recording, {}, consequences=True)
        findings += [reported.as_certain(recording, finding) for finding in alone]
    errors = [finding for finding in findings if finding.severity == "error"]
    outcome = outcome_of(waiting, errors)
    if not errors and recording.report is not None and recording.report.messages:
        outcome = "interrupted"
    if outcome == "divergence":  # no rank is known to have continued
        outcome = "hang" if errors[0].waiting else "crash"
    if errors and errors[0].type in reported.WAITS:  # what ended the ranks was a time-out
        outcome = "hang"
    return Diagnosis(
        outcome=outcome,
        findings=tuple(_with_checkpoints(recording, findings, outcome)),
        settled=bool(errors) or (bool(exit_codes) and None not in exit_codes.values()),
        world_size=recording.world_size,
        exit_codes=exit_codes,
        notes=reported.open_questions(recording, errors),
        reported=True,
    )


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


def _exit_code(record: RankRecord) -> int | None:
    ending = record.ending
    if ending is None or ending.how == "ended" or ending.code == UNKNOWN_SIGNAL:
        return None
    return ending.code


def _findings(
    recording: Recording,
    standing: dict[int, Standing],
    found_waits: dict[int, Wait],
    held: frozenset[int],
    patience: float,
) -> list[Finding]:
    odd = mismatch.first_mismatch(recording)
    failures = endings.find(recording, found_waits)
    failed = {rank for failure in failures for rank in failure.culprits}
    if odd is not None and not odd.completed:
        # A rank that raised and then, on its way out, made another call than its peers.
        raised = {rank for rank in failed & set(odd.calls) if standing[rank].record.ending.how == "raised"}  # type: ignore[union-attr]
        refused = raised and not endings.handled_refusal(recording)
        failures = failures if refused else [mismatch.explain(recording, odd)]
        return _with_silent(recording, standing, held, patience, failures)
    if not failures:
        lost = {rank for rank, record in recording.ranks.items() if endings.is_consequence(record)}
        if lost:
            failures = _why_lost(recording, standing, lost)
            failures = failures or endings.find(recording, found_waits, consequences=True)
    if not failures:
        failures = missing_calls.find(recording, standing, found_waits, held, patience)
        failures = failures or queued_calls.find(recording, standing, patience)
    if odd is not None:  # it completed silently, with wrong numbers
        failures = [*failures, mismatch.explain(recording, odd)]
    if not failures:
        apart = startup.unreachable(recording, standing, found_waits, patience) or stores.apart(standing, patience)
        failures = [apart] if apart is not None else _all_idle(standing, found_waits, patience)
        shared = new_groups.of_one_name(recording, standing, patience)
        failures += [shared] if shared is not None else []
    found = _with_silent(recording, standing, held, patience, failures)
    return (
        found
        if any(finding.severity == "error" for finding in found)
        else [*found, *stragglers.find(standing, found_waits, recording.taken_ns)]
    )


def _with_silent(
    recording: Recording, standing: dict[int, Standing], held: frozenset[int], patience: float, failures: list[Finding]
) -> list[Finding]:
    """The failures under their most specific codes, then the other problems."""
    if reported.calls_alone(recording):
        return failures
    failures = [refine(recording, standing, finding, patience) for finding in failures]
    failures = [frameworks.in_terms(recording, standing, finding) for finding in failures]
    failures = [compiled.explain(recording, standing, finding) for finding in failures]
    if any(finding.type == UNEVEN_ITERATIONS for finding in failures):
        uneven = uneven_shards(recording, stopped=True)
        failures += [uneven] if uneven is not None else []
    return [*failures, *rules.find(recording, failures, held)]


def _why_lost(recording: Recording, standing: dict[int, Standing], lost: set[int]) -> list[Finding]:
    """Every failure is a secondary one: find what these ranks waited for when they failed."""
    stale = startup.stale_address(recording)
    if stale is not None:
        return [stale]
    then = dict(standing)
    missing = MissingRanks(recording)
    for rank in lost:
        record = recording.ranks[rank]
        failed = [call for call in record.calls if call.state.name == "FAILED"] or _needed(recording, missing, record)
        events = record.events(InitProcessGroup, NewGroup, state="failed")
        if failed:
            then[rank] = replace(standing[rank], state=RankState.WAITING, call=failed[-1], site=failed[-1].site)
        elif events:
            state = RankState.STARTING if isinstance(events[-1], InitProcessGroup) else RankState.CREATING_GROUP
            then[rank] = replace(standing[rank], state=state, event=events[-1])
    for rank, one in then.items():  # a rank that was outside when the others timed out is the cause
        if one.state in (RankState.BLOCKED, RankState.UNRESPONSIVE):
            process = replace(one.record.process, wakes_in_s=None)
            then[rank] = replace(one, record=replace(one.record, process=process))
    found_waits = waits(recording, then, 0.0)
    return missing_calls.find(recording, then, found_waits, stuck(found_waits, then, 0.0), 0.0)


def _needed(recording: Recording, missing: MissingRanks, record: RankRecord) -> list[Call]:
    """Of the calls without a recorded end, the first that needs a rank which did not make it.

    Those before it may be complete: DDP waits for them where ddpnb does not see it.
    """
    calls = record.in_flight
    alone = (call for call in calls if any(member in recording.ranks for member in missing.in_call(call, record.rank)))
    first = next(alone, next(iter(calls), None))
    return [] if first is None else [first]


def _all_idle(standing: dict[int, Standing], found_waits: dict[int, Wait], patience: float) -> list[Finding]:
    """Every rank that has not ended is blocked outside any collective, with a group alive or before there was one."""
    open_ranks = [rank for rank, s in standing.items() if s.state is not RankState.ENDED]
    if not open_ranks or len(standing) < 2 or found_waits:
        return []
    opened = [standing[rank] for rank in open_ranks]
    before = all(blocked.before_init(one.record) for one in opened)
    if not before and not all(map(_group_alive, opened)):
        return []
    if not all(one.expired(_all_idle_patience(one, before) * patience) for one in opened):
        return []
    found = blocked.of(standing, sorted(open_ranks), [], None)
    # In a call like any other: all its members may have made it.
    return [replace(found, severity="note") if all(one.function for one in opened) else found]


def _group_alive(standing: Standing) -> bool:
    record = standing.record
    made = len(record.events(InitProcessGroup, state="done"))
    ended = len(record.events(DestroyProcessGroup, state="done"))
    return made > ended or bool(record.events_forgotten and record.calls and not ended)


def _all_idle_patience(standing: Standing, before_init: bool) -> int:
    """How many times the patience a rank may be idle while all are.

    Before the start-up, a rank that waits for a file lock, a child process that is idle too, or in a loop of sleeps, does
    not wait for another machine: a download that is slow to answer looks different.
    """
    waits_on = standing.record.process.waits_on
    return 1 if before_init and waits_on.startswith(blocked.LOCAL) else _NOBODY_WAITS
