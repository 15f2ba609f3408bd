"""Between which numbered checkpoints a failure begins, from the recording of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ddpnb.bisection.recorded import START, Located
from ddpnb.bisection.steps import Bound, bound_of, facts_of, lines_of
from ddpnb.model import phrases
from ddpnb.model.checkpoints import checkpoints as passed_by
from ddpnb.model.checkpoints import first_not_passed_by_all, last_passed, named, with_line
from ddpnb.model.events.runs import Checkpoint
from ddpnb.model.recording import Recording
from ddpnb.rules.diagnose import diagnose

CHECKPOINT = "checkpoint"
END = "end"  # after the last one
_Passed = Mapping[int, Sequence[Checkpoint]]  # by rank, in order


def checkpoints(recording: Recording) -> Located:
    """The first numbered checkpoint by which the failure is there.

    Of a hang or a crash, that is the first one that not all ranks passed. Of a divergence, it is the first one after the
    digests that differ.

    Example:
        >>> checkpoints(recording).result.first_bad
        'epoch 2'
    """
    passed = passed_by(recording)
    if not any(passed.values()):
        return Located(
            CHECKPOINT, missing='No rank passed a numbered checkpoint. Mark places with ddpnb.checkpoint("loaded").'
        )
    diagnosis = diagnose(recording)
    outcome = diagnosis.outcome
    if outcome == "ok" and all(one.ending is None or one.ending.well for one in recording.ranks.values()):
        return Located(CHECKPOINT, lines=(last_passed(recording.ranks),))
    diverged = outcome == "divergence" or any(one.code.startswith("DDP4") for one in diagnosis.errors[:1])
    bound = bound_of(recording) if diverged else None
    if isinstance(bound, Bound):
        return _of_divergence(passed, bound)
    if outcome == "divergence":
        why = bound if isinstance(bound, str) else "The recording has no digest of parameters that differs."
        return Located(CHECKPOINT, missing=why)
    return _of_hang(recording, passed)


def _of_hang(recording: Recording, passed: _Passed) -> Located:
    """The ranks stopped: between the last checkpoint that all passed and the first that not all did."""
    first = first_not_passed_by_all(recording)
    if first is None:  # all passed the same
        mine, place = max(passed.values(), key=len), max(map(len, passed.values()))
    else:
        mine = next(those for those in passed.values() if first.checkpoint in those)
        place = mine.index(first.checkpoint)
    everywhere = [{_visit(one) for one in those} for those in passed.values()]
    before = next((n for n in reversed(range(place)) if all(_visit(mine[n]) in those for those in everywhere)), None)
    names = _names(mine)
    since = (
        f"after {named(mine[before])}, which all ranks passed"
        if before is not None
        else "before any that all ranks passed"
    )
    lines = [f"The ranks stop {since}.", last_passed(recording.ranks)]
    if first is not None:
        lines.append(f"Not passed by {phrases.ranks(first.missing)}: {with_line(first.checkpoint)}.")
    after = names[place] if first is not None else END
    facts = {
        "last_passed": {str(rank): _names(those)[-1] for rank, those in sorted(passed.items()) if those},
        "missing": list(first.missing) if first is not None else [],
    }
    places = (START if before is None else names[before], after)
    return Located(CHECKPOINT, places, (*lines, *_forgotten(mine, before, place)), facts=facts)


def _of_divergence(passed: _Passed, bound: Bound) -> Located:
    """The replicas differ: between the last checkpoint before they were last seen equal and the first after they were not."""
    differ = {rank: sample.at_ns for rank, sample in bound.found.samples.items()}
    equal = {rank: sample.at_ns for rank, sample in bound.agreed.items()}
    mine = max((passed.get(rank, ()) for rank in differ), key=len)
    times = {rank: {_visit(one): one.began_ns for one in passed.get(rank, ())} for rank in differ}
    before, after = -1, len(mine)
    for place, one in enumerate(mine):
        at = {rank: visits[_visit(one)] for rank, visits in times.items() if _visit(one) in visits}
        if all(rank in equal and time <= equal[rank] for rank, time in at.items()):
            before = place
        elif place < after and all(time >= differ[rank] for rank, time in at.items()):
            after = place
    names = [START, *_names(mine), END]
    places = tuple(names[before + 1 : after + 2])
    looks = bound.looks if len(places) > 2 else None
    last = {
        str(rank): _names(earlier)[-1]
        for rank, those in sorted(passed.items())
        if (earlier := [one for one in those if one.began_ns <= differ.get(rank, -1)])
    }
    equal_after = (
        f"The replicas were equal after {named(mine[before])}, and differ" if before >= 0 else "The replicas differ"
    )
    lines = (
        f"{equal_after} {f'before {named(mine[after])}' if after < len(mine) else 'at the end: no later one was passed'}.",
        *lines_of(bound),
        *_forgotten(mine, before if before >= 0 else None, after),
    )
    return Located(CHECKPOINT, places, lines, looks=looks, facts=facts_of(bound.found) | {"last_passed": last})


def _visit(one: Checkpoint) -> tuple[str, int, int]:
    return one.site.file, one.site.line, one.visit


def _names(those: Sequence[Checkpoint]) -> list[str]:
    """Their names; with the number where a name comes several times."""
    names = [one.name or f"checkpoint {one.number}" for one in those]
    counts = Counter([*names, START, END])
    return [name if counts[name] == 1 else f"{name} #{one.number}" for name, one in zip(names, those, strict=True)]


def _forgotten(those: Sequence[Checkpoint], before: int | None, after: int) -> list[str]:
    """Checkpoints between two places that were not kept, in a sentence."""
    first = those[before].number if before is not None else 0
    if after < len(those) and those[after].number - first > after - (-1 if before is None else before):
        return [f"Between checkpoints {first} and {those[after].number} some were passed that are not kept."]
    return []
