"""Ranks that ended: what torch raised, timeouts that were too short, exits with status 0 and kills."""

from __future__ import annotations

import re
from dataclasses import replace

from ddpnb.facts.once import once
from ddpnb.facts.standings import Standing
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE
from ddpnb.model.events.models import ParametersFrozen
from ddpnb.model.events.startup import InitProcessGroup, NewGroup
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.rules.environment.timeouts import TIMEOUT_SETTING
from ddpnb.rules.exit_status import EXIT_CODE_MASKED, left_quietly
from ddpnb.rules.finding_types import type_of
from ddpnb.rules.hangs import workers
from ddpnb.rules.messages.explain import explain
from ddpnb.rules.messages.explained import Explained, blamed

UNUSED_PARAMETERS = FindingType("DDP401", "unused-parameters", supersedes=("DDP409",))
HOST_MEMORY = FindingType("DDP706", "host-memory")

LESS_HOST_MEMORY = "Use less host memory: fewer data loader workers, smaller prefetch, no caching of the data set per rank; or raise the limit."
_SHORT_S = 10.0  # a timeout below this is too short, however small the patience
_TIMED_OUT = re.compile(r"[Tt]imed out (?:waiting|after) (\d{1,12})ms")


def explained(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """What torch raised, in the user's terms."""
    told: dict[int, Explained] = {}
    for rank in finding.culprits:
        ending = recording.ranks[rank].ending
        if ending is None or not (ending.exception or (ending.how == "raised" and ending.message)):
            continue
        one = explain(
            ending.message,
            ending.exception,
            names=_trained(recording.ranks[rank]),
            frames=ending.frames,
            sources=recording.sources,
            traceback=ending.traceback,
            frozen=_frozen(recording.ranks[rank]),
        )
        if one is not None:
            told[rank] = one
    if not told:
        return None
    first = told[min(told)]
    named = blamed(told, recording.world_size)
    missing = tuple(sorted({rank for one in told.values() for rank in one.missing}))
    culprits = tuple(r for r in (named or missing) if r in recording.ranks) or finding.culprits
    if recording.report is not None and named == () and not missing:
        culprits = ()  # another rank, of which the message does not say which
    waiting = phrases.besides(sorted({*finding.waiting, *finding.culprits}), culprits)
    places = dict(finding.where)
    for rank in culprits:
        if rank not in places and rank in standings and standings[rank].site != NO_SITE:
            places[rank] = standings[rank].site
    order = [*culprits, *waiting]
    return Finding(
        type_of(first.code),
        f"{phrases.ranks(culprits or waiting, True)}: {first.summary}",
        culprits,
        waiting,
        finding.collective,
        tuple((rank, places[rank]) for rank in order if rank in places),
        (*first.evidence, *finding.evidence),
        first.remedy or finding.remedy,
        "error",  # it ended a rank, whatever its type
        first.tensors,
        hint=first.hint,
    )


def _trained(record: RankRecord) -> tuple[str, ...]:
    """The parameters of the model that was wrapped last, as the wrapper counts them."""
    models = [model for model in record.models if model.wrapper]
    return tuple(t.name for t in models[-1].parameters if t.trains and not t.ignored) if models else ()


def _frozen(record: RankRecord) -> tuple[str, ...]:
    """The parameters of the model that was wrapped last that were seen to be frozen since, when a forward failed."""
    models = [model.number for model in record.models if model.wrapper]
    seen = [event for event in record.events(ParametersFrozen) if event.model in models[-1:]]
    return seen[-1].names if seen else ()


def quiet_exit(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP701: a process exited with status 0 although others needed it."""
    quiet = [r for r in finding.culprits if left_quietly(recording.ranks[r])]
    if not quiet:
        return None
    return replace(
        finding,
        type=EXIT_CODE_MASKED,
        summary=f"{phrases.ranks(quiet, True)} exited with status 0 in the middle of the run.",
        remedy="Exit with a non-zero status when training fails: no os._exit(0) or sys.exit(0) in a finally.",
    )


def short_timeout(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP317: a timeout that is shorter than a computing rank needs."""
    fired = _fired(recording)
    if not fired:
        return None
    seconds = fired[0] / 1000
    made = {
        rank: [event for event in record.events(NewGroup, InitProcessGroup) if event.timeout_s == seconds]
        for rank, record in recording.ranks.items()
    }
    culprits = tuple(rank for rank, events in sorted(made.items()) if events)
    if not culprits or seconds > 60:
        return None
    return replace(
        finding,
        type=TIMEOUT_SETTING,
        certainty="likely",
        culprits=culprits,
        waiting=(),
        summary=f"The timeout of {seconds:g} s is too short: it fired while a rank was still working.",
        where=tuple((r, made[r][-1].site) for r in culprits if made[r][-1].site != NO_SITE),
        remedy="Set the group's timeout above its longest legitimate wait, or do the long work on all ranks, or outside the wait.",
    )


def too_soon(recording: Recording, standings: dict[int, Standing], finding: Finding, patience: float) -> Finding | None:
    """DDP317: other ranks timed out before it could be proven that a rank is stuck."""
    better = short_timeout(recording, standings, finding)
    locked = any("lock" in r.process.waits_on for rank in finding.culprits if (r := recording.ranks.get(rank)))
    # A rank that waits for a lock is not working.
    if better is None or max(_fired(recording)) >= 1000 * max(patience, _SHORT_S) or locked:
        return None
    return replace(better, evidence=(*finding.evidence, *better.evidence))


@once
def _fired(recording: Recording) -> list[int]:
    """The timeouts in the ranks' last messages, in milliseconds."""
    told = [ending.message for record in recording.ranks.values() if (ending := record.ending) is not None]
    return [int(match[1]) for message in told if (match := _TIMED_OUT.search(message[:20_000]))]


def killed_by_kernel(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP706: a SIGKILL together with a kill by the OOM killer."""
    killed = [
        r for r in finding.culprits if (e := recording.ranks[r].ending) is not None and e.signal_name == "SIGKILL"
    ]
    count = workers.kills_for_memory(recording)
    if not killed or not count:
        return None
    was = phrases.verb(killed, "was", "were")
    return replace(
        finding,
        type=HOST_MEMORY,
        certainty="likely",
        summary=f"{phrases.ranks(killed, True)} {was} killed by the kernel: the machine (or the container) ran out of memory."
        if workers.counts_own(recording)
        else f"{phrases.ranks(killed, True)} {was} killed (SIGKILL), perhaps by the kernel, which has killed {count} process"
        f"{'es' * (count > 1)} of this machine for lack of memory since the start.",
        evidence=(
            f"The kernel counts {count} more out-of-memory kill{'s' * (count > 1)} than at the start."
            if recording.report is None
            else f"The logs contain {count} out-of-memory kill{'s' * (count > 1)}.",
            *finding.evidence,
        ),
        remedy=LESS_HOST_MEMORY,
    )
