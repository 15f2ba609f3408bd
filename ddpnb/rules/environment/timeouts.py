"""Time-outs of groups that are probably not meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE, CallState, Site
from ddpnb.recording.collectives import collective_of
from ddpnb.recording.events.startup import InitProcessGroup, NewGroup
from ddpnb.recording.facts.compilations import WARM_UP, described, named
from ddpnb.recording.facts.endings import timed_out_ns
from ddpnb.recording.facts.init_facts import inits
from ddpnb.recording.facts.once import once
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.recording.recording import Recording
from ddpnb.rules.causes.blocked import in_a_call
from ddpnb.rules.rule import Draft, each, family, refine, refined

TIMEOUT_SETTING = FindingType("DDP317", "timeout-setting", severity="note")

DEFAULT_TIMEOUT_S = 1800.0
_SHORT_S = 10.0  # a timeout below this is too short, however small the patience
_TIMED_OUT = re.compile(r"[Tt]imed out (?:waiting|after) (\d{1,12})ms")
_FEW = 4  # ranks that are described
_MINUTE_S = 60.0
_LONG_S = 4 * 3600.0
_REMEDY = "Pass timeout=timedelta(...) when creating the group: a little more than its longest legitimate wait."


@family(TIMEOUT_SETTING)
def timeouts(snap: Snapshot) -> Iterable[Draft]:
    """A sub-group without the time-out of the default group, or a time-out of many hours."""
    starts = PerRank(inits(snap.recording))
    given = snap.every(NewGroup).of(
        lambda groups: next((one for one in reversed(groups) if one.timeout_s is None), None)
    )
    for rank, own in starts.of(lambda start: start.timeout_s).items():
        if own >= _LONG_S:
            ranks = tuple(starts.of(lambda start, own=own: start if start.timeout_s == own else None))
            text = f"The time-out of the process group is {own / 3600:.0f} hours: hangs take that long to be detected."
            return [Draft(text, ranks, _REMEDY, starts.among(ranks), severity="warning")]
        if own < DEFAULT_TIMEOUT_S and rank in given:
            text = (
                f"new_group() does not inherit the default group's time-out of {own:.0f} s: the sub-group has the "
                f"default of {DEFAULT_TIMEOUT_S / 60:.0f} minutes."
            )
            return [Draft(text, tuple(given), _REMEDY, given, severity="warning" if snap.stuck else "note")]
    return ()


@refine(
    TIMEOUT_SETTING, refines=("DDP312", "DDP313"), after=("DDP103", "DDP109", "DDP301", "DDP403", "DDP404", "DDP707")
)
def short_timeout(snap: Snapshot, finding: Finding) -> Draft | None:
    """A timeout is shorter than a computing rank needs; it fired before it could be proven that a rank is stuck."""
    fired = _fired(snap.recording)
    if not fired or (finding.code == "DDP313" and not _working(snap, finding, max(fired.values()) / 1000)):
        return None
    seconds = next(iter(fired.values())) / 1000
    made = snap.last(NewGroup, InitProcessGroup, timeout_s=seconds)
    if not made or seconds > _MINUTE_S:
        return None
    late = _late(snap, tuple(fired))
    return refined(
        finding,
        certainty="likely",
        culprits=tuple(made),
        waiting=(),
        summary=f"The timeout of {seconds:g} s is too short: it fired while "
        f"{phrases.ranks(tuple(late)) if late else 'a rank'} {phrases.verb(tuple(late) or (0,), 'was', 'were')} still working.",
        where=(*((rank, event.site) for rank, event in made.items() if event.site != NO_SITE), *late.items()),
        # What the time-out ended comes before what followed from that.
        evidence=(
            *sorted(finding.evidence, key=lambda text: not _TIMED_OUT.search(text)),
            *each(
                late,
                lambda rank: (
                    f"Rank {rank} had not made the call. It was at {late[rank]}, or further in the same function."
                ),
            ),
        ),
        remedy="Set the group's timeout above its longest legitimate wait, or do the long work on all ranks, or outside the wait.",
    )


def _working(snap: Snapshot, finding: Finding, longest_s: float) -> bool:
    """Whether blocked ranks may have worked until a time-out: one that waits for a lock does not."""
    locked = any("lock" in record.process.waits_on for record in snap.ranks.among(finding.culprits).values())
    return longest_s < max(snap.patience, _SHORT_S) and not locked and not in_a_call(snap, finding)


@once
def _fired(recording: Recording) -> dict[int, int]:
    """The timeouts in the ranks' last messages, in milliseconds."""
    endings = {rank: ending for rank, record in recording.ranks.items() if (ending := record.ending) is not None}
    matches = {rank: _TIMED_OUT.search(ending.message[:20_000]) for rank, ending in endings.items()}
    return {rank: int(match[1]) for rank, match in matches.items() if match}


def _late(snap: Snapshot, fired: Sequence[int]) -> dict[int, Site]:
    """The ranks that had not made the call in which the first of these timed out, and the last line that each has begun."""
    calls = [call for call in snap.ranks[fired[0]].calls if call.state is CallState.FAILED]
    missing = sorted(collective_of(snap.recording, calls[-1]).missing_ranks) if calls and calls[-1].seq else []
    lines = {rank: snap.ranks[rank].executed for rank in missing if rank in snap.ranks and rank not in fired}
    return {rank: one.within for rank, one in lines.items() if one is not None and one.within is not None}


@refine(TIMEOUT_SETTING, refines=("DDP301", "DDP312"))
def timed_out_while_compiling(snap: Snapshot, finding: Finding) -> Draft | None:
    """Waits of ranks timed out while the others were compiling."""
    recording = snap.recording
    fired = {rank: at for rank, record in recording.ranks.items() if (at := timed_out_ns(record.ending))}
    compiling = {rank: one for rank, record in recording.ranks.items() if (one := record.compiling) is not None}
    if not fired or not compiling or finding.severity != "error":
        return None
    waiting = tuple(sorted(fired))
    first, told = next(iter(sorted(compiling))), sorted(compiling)
    calls = {rank: record.calls[-1] for rank in waiting if (record := recording.ranks[rank]).calls}
    return refined(
        finding,
        summary=f"{phrases.ranks(waiting, True)} timed out while {phrases.ranks(told)} {phrases.verb(told, 'was', 'were')} "
        f"compiling {named(compiling[first])}.",
        culprits=tuple(told),
        waiting=waiting,
        sides=(),
        where=(*((rank, compiling[rank].site) for rank in told), *((rank, call.site) for rank, call in calls.items())),
        evidence=(
            *(f"Rank {rank} {described(compiling[rank], min(fired.values()))}" for rank in told[:_FEW]),
            *phrases.observed(finding),
        ),
        remedy=WARM_UP,
        certainty="likely",
        hint=None,
    )
