"""Ranks that ended: what torch raised, timeouts that were too short, exits with status 0 and kills."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.events.models import ParametersFrozen, ParametersReplaced
from ddpnb.recording.facts.children import counts_own, kills_for_memory
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.findings import Certainty, Finding, FindingType
from ddpnb.recording.messages.explain import explain
from ddpnb.recording.messages.explained import Explained, blamed
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.rules.exit_status import EXIT_CODE_MASKED, left_quietly
from ddpnb.rules.finding_types import type_of
from ddpnb.rules.rule import Draft, refine, refined, say, title

UNUSED_PARAMETERS = FindingType("DDP401", "unused-parameters", supersedes=("DDP409",))
HOST_MEMORY = FindingType("DDP706", "host-memory")

LESS_HOST_MEMORY = "Use less host memory: fewer data loader workers, smaller prefetch, no caching of the data set per rank; or raise the limit."


@refine(
    UNUSED_PARAMETERS,
    refines=("DDP312",),
    after=("DDP103", "DDP301", "DDP317", "DDP403", "DDP404", "DDP603", "DDP707"),
    needs=(),
)
def what_torch_raised(snap: Snapshot, finding: Finding) -> Draft | None:
    """What ranks raised, in the user's terms."""
    told = _explained(snap, finding)
    return _in_terms(snap, finding, told) if told else None


def _explained(snap: Snapshot, finding: Finding) -> dict[int, Explained]:
    told: dict[int, Explained] = {}
    for rank in finding.culprits:
        record = snap.ranks[rank]
        ending = record.ending
        if ending is None or not (ending.exception or (ending.how == "raised" and ending.message)):
            continue
        one = explain(
            ending.message,
            ending.exception,
            names=_trained(record),
            frames=ending.frames,
            sources=snap.recording.sources,
            traceback=ending.traceback,
            frozen=_frozen(record),
        )
        if one is not None:
            told[rank] = one
    return told


def _in_terms(snap: Snapshot, finding: Finding, told: Mapping[int, Explained]) -> Draft:
    first = _with_replaced(told[min(told)], snap.ranks[min(told)])
    named, sides = blamed(told, snap.recording.world_size, finding.waiting)
    missing = tuple(sorted({rank for one in told.values() for rank in one.missing}))
    culprits = () if sides else tuple(r for r in (named or missing) if r in snap.ranks) or finding.culprits
    if snap.recording.report is not None and named == () and not missing:
        culprits = ()  # another rank, of which the message does not say which
    apart = tuple(sorted(rank for side in sides for rank in side))
    waiting = phrases.besides(sorted({*finding.waiting, *finding.culprits}), culprits or apart)
    concerned = phrases.ranks(culprits or apart or waiting, True)
    says_it = first.summary.startswith(f"{concerned} ")
    who, told_by = ("", first.summary) if says_it else (f"{concerned}: ", _lower(first.summary))
    short = title(f"{who}{told_by}", *(f"{who}{one}" for one in _shorter(told_by)))
    return Draft(
        short,
        culprits,
        first.remedy or finding.remedy,
        {**snap.at(culprits or apart), **dict(finding.where)},
        waiting,
        sides,
        evidence=(*([] if short.endswith(told_by) else [first.summary]), *first.evidence, *finding.evidence),
        kind=type_of(first.code),
        instead=finding,
        collective=finding.collective,
        tensors=first.tensors,
        certainty=_certainty(snap.recording, finding, first.code, named, sides),
        severity="error",  # it ended a rank, whatever its type
        hint=first.hint,
    )


def _certainty(
    recording: Recording, finding: Finding, code: str, named: tuple[int, ...] | None, sides: tuple[tuple[int, ...], ...]
) -> Certainty:
    """A message that names ranks proves it; one of a report that blames an unknown one does not.

    A file that is absent or incomplete may be so by what a rank did of which nothing is known.
    """
    if named or sides:
        return "proven"
    if code == "DDP603" and len(recording.ranks) < recording.world_size:
        return "likely"
    return "likely" if recording.report is not None and named == () else finding.certainty


# Words with which a sentence of ours begins, and which are no names.
_BEGINS = re.compile(
    r"(A|An|Another|Could|Found|No|One|Out|Parameters?|Port|Ranks?|Samples|Shared|The|There|This|Timed|Too) "
)


def _lower(sentence: str) -> str:
    """A sentence as it stands after a colon; names stay as they are."""
    return sentence[:1].lower() + sentence[1:] if _BEGINS.match(sentence) else sentence


def _shorter(sentence: str) -> list[str]:
    """Its beginnings, up to a place where a sentence may end, the longest first."""
    ends = [found.start() for found in re.finditer(r"[.:;] |, (?:but|so|and|which)\b", sentence)]
    return [f"{sentence[:end]}." for end in reversed(ends)]


def _trained(record: RankRecord) -> tuple[str, ...]:
    """The parameters of the model that was wrapped last, as the wrapper counts them."""
    models = [model for model in record.models if model.wrapper]
    return tuple(t.name for t in models[-1].parameters if t.trains and not t.ignored) if models else ()


def _with_replaced(told: Explained, record: RankRecord) -> Explained:
    """Unused parameters in whose place the module has others by now: where these are used is no hint."""
    names = [name for event in record.events(ParametersReplaced) for name in event.names]
    if told.code != UNUSED_PARAMETERS.code or not names:
        return told
    words = f"Replaced after wrapping: {', '.join(names[:4])}. DDP waits for the gradients of the parameters that it wrapped."
    remedy = "Change the model first, then wrap it (or wrap it again), then build the optimizer."
    return replace(told, evidence=(words, *told.evidence), remedy=remedy, hint=None)


def _frozen(record: RankRecord) -> tuple[str, ...]:
    """The parameters of the model that was wrapped last that were seen to be frozen since, when a forward failed."""
    models = [model.number for model in record.models if model.wrapper]
    seen = [event for event in record.events(ParametersFrozen) if event.model in models[-1:]]
    return seen[-1].names if seen else ()


@refine(refines=("DDP311",), after=("DDP706",), needs=(), gives=("DDP701",))
def quiet_exit(snap: Snapshot, finding: Finding) -> Draft | None:
    """A process exited with status 0 although others needed it."""
    quiet = [rank for rank in finding.culprits if left_quietly(snap.ranks[rank])]
    if not quiet:
        return None
    return refined(
        finding,
        EXIT_CODE_MASKED,
        summary=f"{phrases.ranks(quiet, True)} exited with status 0 in the middle of the run.",
        remedy="Exit with a non-zero status when training fails: no os._exit(0) or sys.exit(0) in a finally.",
    )


@refine(HOST_MEMORY, refines=("DDP311",), needs=())
def host_memory(snap: Snapshot, finding: Finding) -> Draft | None:
    """A SIGKILL together with a kill by the OOM killer."""
    count, counted = kills_for_memory(snap.recording), counts_own(snap.recording)
    endings = snap.ranks.among(finding.culprits).of(lambda record: record.ending)
    killed = [rank for rank, ending in endings.items() if ending.signal_name == "SIGKILL"]
    if not killed or not count:
        return None
    by, more = "by the kernel: the machine (or the container)", "s" * (count > 1)
    by = by if counted else "(SIGKILL), perhaps by the kernel: this machine"
    return refined(
        finding,
        certainty="likely",
        summary=say("{who} [was|were] killed {by} ran out of memory.", killed, by=by),
        evidence=(
            f"The kernel counts {count} more out-of-memory kill{more} {'' if counted else 'on this machine '}than at the start."
            if snap.recording.report is None
            else f"The logs contain {count} out-of-memory kill{more}.",
            *finding.evidence,
        ),
        remedy=LESS_HOST_MEMORY,
    )
