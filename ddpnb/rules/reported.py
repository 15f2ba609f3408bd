"""What only reports need: endings that follow from a time-out, errors of unknown ranks, and what remains open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ddpnb.facts.before_the_end import interrupted_while_waiting
from ddpnb.facts.standings import Standing
from ddpnb.model import checkpoints, phrases
from ddpnb.model.findings import Finding
from ddpnb.model.rank_state import RankState
from ddpnb.model.recording import Recording
from ddpnb.rules import reported_waits, unattributed
from ddpnb.rules.hangs import queued_calls, stacks_alone
from ddpnb.rules.hangs.blocked import BLOCKED_ELSEWHERE, RANK_FROZEN
from ddpnb.rules.hangs.endings import RANK_DEAD, RANK_RAISED, is_consequence
from ddpnb.rules.hangs.group_order import GROUP_ORDER
from ddpnb.rules.hangs.skipped_call import COLLECTIVE_MISSING
from ddpnb.rules.hangs.stacks_alone import SAME_COLLECTIVE
from ddpnb.rules.hangs.startup import RENDEZVOUS_UNREACHABLE, WORLD_INCOMPLETE
from ddpnb.rules.messages.explain import explain_text
from ddpnb.texts import shortened

WAITS = frozenset({COLLECTIVE_MISSING, BLOCKED_ELSEWHERE, SAME_COLLECTIVE, WORLD_INCOMPLETE, RENDEZVOUS_UNREACHABLE})
_FEW = 8


def calls_alone(recording: Recording) -> bool:
    """Whether the report shows calls and nothing else, so that no rule about events, stacks or errors can say more."""
    return recording.report is not None and not any(
        record.history or record.stacks or record.ending is not None for record in recording.ranks.values()
    )


def as_certain(recording: Recording, finding: Finding) -> Finding:
    """The finding, as certain as the report can make it: a log shows a call that timed out, and not those behind it."""
    ranks = [recording.ranks[rank] for rank in finding.concerned if rank in recording.ranks]
    if (
        finding.type == RANK_RAISED
        and ranks
        and all(is_consequence(recording.ranks[rank]) for rank in finding.culprits)
    ):
        return _lost(recording, finding.culprits)
    if finding.type == RANK_RAISED and ranks and all(one.ending is None or one.ending.how == "exited" for one in ranks):
        return replace(finding, evidence=(*finding.evidence, *_unnamed_exceptions(recording)))
    if finding.type == GROUP_ORDER and any(record.partial for record in ranks):
        return replace(finding, certainty="likely")
    if finding.type == RANK_FROZEN and ranks and all(record.reported for record in ranks):
        return replace(finding, certainty="likely")  # NCCL's watchdog says what a stop of it "typically" means
    return finding


def _unnamed_exceptions(recording: Recording) -> list[str]:
    """What may have made ranks exit of which only the exit status is known."""
    endings = recording.report.endings if recording.report is not None else ()
    return [
        phrases.sentence(f"A rank that the files do not name raised {shortened(str(ending).split(chr(10), 1)[0], 300)}")
        for ending in endings
        if ending.how == "raised"
    ][:_FEW]


def _lost(recording: Recording, waiting: tuple[int, ...]) -> Finding:
    """DDP311: ranks lost their connection to another rank, of which the report does not say which, or why it ended."""
    said = [(rank, ending) for rank in waiting if (ending := recording.ranks[rank].ending) is not None]
    return Finding(
        RANK_DEAD,
        f"{phrases.ranks(waiting, True)} lost the connection to another rank: that one ended, or the network between "
        "them failed.",
        (),
        waiting,
        evidence=tuple(
            phrases.sentence(f"Rank {rank}: {shortened(str(ending).removeprefix(': '), 300)}")
            for rank, ending in said[:_FEW]
        ),
        remedy=unattributed.LOOK_AT_FIRST,
        certainty="likely",
    )


def find(recording: Recording, standing: dict[int, Standing], errors: Sequence[Finding]) -> list[Finding]:
    """What the report says beyond the errors that the rules have found: the causes before them, or all there is."""
    causes = unattributed.find(recording, errors)
    if causes or errors:
        return causes
    return (
        _of_stacks(recording, standing)
        or _named_missing(recording)
        or queued_calls.find(recording, standing)
        or reported_waits.find(recording, standing)
        or _after_checkpoints(recording, standing)
        or reported_waits.unnamed(recording)
        or unattributed.stopped(recording.report.endings if recording.report is not None else ())
    )


def _of_stacks(recording: Recording, standing: dict[int, Standing]) -> list[Finding]:
    return stacks_alone.find(recording, standing, 0.0) if any(s.record.unrecorded for s in standing.values()) else []


def _named_missing(recording: Recording) -> list[Finding]:
    """DDP301: ranks that a message names as missing, where no file shows the call of the others."""
    missing = recording.report.missing if recording.report is not None else ()
    if not missing:
        return []
    named = f"{phrases.ranks(missing, True)} {phrases.verb(missing, 'is', 'are')}"
    return [
        Finding(
            COLLECTIVE_MISSING,
            f"{named} missing: other ranks waited for {phrases.verb(missing, 'it', 'them')} until their time-out.",
            missing,
            evidence=(f"{named} named as missing in these files.",),
            remedy="Look at the output of these ranks, and at their stacks while it hangs (py-spy dump --pid PID).",
            certainty="timed",
        )
    ]


def _after_checkpoints(recording: Recording, standing: dict[int, Standing]) -> list[Finding]:
    """DDP313: ranks that wrote no further checkpoint line while others did, or all after the same one."""
    stand = {rank for rank, one in standing.items() if one.state not in (RankState.ENDED, RankState.COMPUTING)}
    last = {rank: one for rank in stand if (one := checkpoints.last(recording.ranks[rank])) is not None}
    if not last:
        return []
    lowest = min(one.number for one in last.values())
    behind = sorted(rank for rank, one in last.items() if one.number == lowest)
    others = sorted(set(last) - set(behind))
    one = last[behind[0]]
    name = f'"{one.name}"' if one.name else "no name"
    return [
        Finding(
            BLOCKED_ELSEWHERE,
            f"The last line of {phrases.ranks(behind)} is checkpoint {lowest} ({name})"
            + (
                f"; {phrases.ranks(others)} passed later ones."
                if others
                else ": none of these ranks passed a later one."
            ),
            tuple(behind),
            tuple(others),
            evidence=tuple(
                f"Rank {rank} passed checkpoint {one.number} last" + (f': "{one.name}".' if one.name else ".")
                for rank, one in sorted(last.items())[:_FEW]
            ),
            remedy="Look at the statements behind that checkpoint; the stack of a rank that hangs there says which "
            "(py-spy dump --pid PID).",
            certainty="likely",
        )
    ]


def open_questions(recording: Recording, errors: Sequence[Finding]) -> tuple[str, ...]:
    """What these files leave open, with what to collect next."""
    report = recording.report
    if report is None:
        return ()
    notes = list(report.unknown)
    if errors and interrupted_while_waiting(recording):
        notes.append("Whether the ranks would have continued: they were interrupted (KeyboardInterrupt).")
    notes += [f"The reason for this line: {shortened(text, 300)}" for text in report.messages if not explain_text(text)]
    absent = [rank for rank, record in recording.ranks.items() if not record.mentioned]
    if not report.world_size_known:
        notes.append(f"The number of ranks: it is at least {recording.world_size}.")
    if absent:
        notes.append(
            f"What {phrases.ranks(absent)} did: collect {phrases.verb(absent, 'its', 'their')} output (torchrun --log-dir DIR "
            "--redirects 3) and flight-recorder dump (TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1; in older "
            "versions of torch TORCH_NCCL_TRACE_BUFFER_SIZE=2000)."
        )
    calls = any(record.calls for record in recording.ranks.values())
    if errors and calls and not any(finding.where for finding in errors):
        notes.append(
            "The lines of the program: flight-recorder dumps contain them, and so do stacks (py-spy dump --pid PID while it "
            "hangs). `ddpnb run -- COMMAND` records both."
        )
    return tuple(notes)
