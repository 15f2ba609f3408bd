"""Parameters that were replaced after the model was wrapped, or after the optimizer was built."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.events.models import OptimizerSeen, ParametersReplaced
from ddpnb.recording.facts.places import Placed
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.recording import RankRecord
from ddpnb.rules.divergence.optimizers import OPTIMIZER_DIFFERS
from ddpnb.rules.divergence.parameter_edit import REPLICA_DRIFT
from ddpnb.rules.rule import Draft, family, say

_SURELY = 3  # backward passes after which an optimizer step would have been seen


@family(REPLICA_DRIFT, OPTIMIZER_DIFFERS)
def stale_parameters(snap: Snapshot) -> Iterable[Draft]:
    """Parameters came into the module after it was wrapped; else the optimizer holds tensors that are not the model's."""
    if replaced := snap.every(ParametersReplaced).of(lambda events: events[0]):
        yield _replaced(snap, replaced)
    elif stale := snap.ranks.of(_stale_optimizer):
        yield _stale(snap, stale)


def _replaced(snap: Snapshot, replaced: dict[int, ParametersReplaced]) -> Draft:
    culprits = tuple(replaced)
    names = replaced[culprits[0]].names
    at: dict[int, Placed] = {**replaced}
    for rank, event in replaced.items():  # where that model was wrapped, too early
        for model in snap.ranks[rank].models:
            if model.wrapper and model.number == event.model and model.site != NO_SITE:
                at[rank] = model
    return Draft(
        f"The model on {phrases.ranks(culprits)} got new parameters after it was wrapped: {', '.join(names[:4])}. "
        "Their gradients are not synchronised.",
        culprits,
        "Change the model first, then wrap it (or wrap it again), then build the optimizer.",
        at,
        waiting=phrases.besides(snap.ranks, culprits),
        evidence=tuple(
            f"Rank {rank}: present in the forward{phrases.at(event.site)}, absent when the model was wrapped."
            for rank, event in list(replaced.items())[:4]
        ),
        kind=REPLICA_DRIFT,
        tensors=names[:20],
    )


def _stale(snap: Snapshot, stale: dict[int, OptimizerSeen]) -> Draft:
    culprits = tuple(stale)
    one = stale[culprits[0]]
    missing = one.missing
    return Draft(
        say(
            "The {kind} on {ranks} does not hold the parameters that are trained: {names} {are} never updated.",
            kind=one.optimizer,
            ranks=culprits,
            names=", ".join(missing[:4]),
            are="is" if len(missing) == 1 else "are",
        ),
        culprits,
        "Build the optimizer after the model is on its device and in its final form: optimizer = Optimizer(model.parameters(), ...).",
        stale,
        waiting=phrases.besides(snap.ranks, culprits),
        evidence=(f"It holds {one.parameters} tensors, {one.strangers} of which are not in the wrapped model.",),
        kind=OPTIMIZER_DIFFERS,
        tensors=missing[:20],
        certainty="likely",
    )


def _stale_optimizer(record: RankRecord) -> OptimizerSeen | None:
    """The last optimizer of a rank that does not hold what is trained.

    What it holds may be another model's: that is known where something gives gradients to it. An optimizer whose
    strangers have none is this model's if they are as many as it lacks, or if it holds nothing of the model that
    is trained; that is not known if another one took the gradients, or its events were forgotten.
    """
    found = None
    last = _as_known_last(record)
    for one in last:
        idle = one.idle is None or one.idle == one.strangers
        stepped = any(s.model == one.model and s.kind == "gradients" for s in record.samples)
        unused = idle and not stepped and (one.copies or _holds_nothing(record, one))
        missing = set(one.missing).intersection(*(other.missing for other in last if other.model == one.model))
        strange = one.strangers if one.idle is None else one.idle
        replaced = 0 < len(missing) <= strange and one.strangers < one.parameters
        if unused or (replaced and not record.events_forgotten):
            found = one
    return found


def _as_known_last(record: RankRecord) -> list[OptimizerSeen]:
    """What is known of each optimizer and model in the end."""
    last: dict[object, OptimizerSeen] = {}
    for place, seen in enumerate(record.events(OptimizerSeen)):
        named = seen.number if seen.number >= 0 else (seen.optimizer, seen.parameters)
        last[-place if seen.idle is None else named, seen.model, seen.idle is None] = seen
    return list(last.values())


def _holds_nothing(record: RankRecord, one: OptimizerSeen) -> bool:
    """Whether a model runs backward repeatedly, while this optimizer steps only other tensors."""
    models = [m for m in record.models if m.number == one.model and m.wrapper]
    trained = {t.name for m in models for t in m.parameters if t.trains}
    backwards = sum(s.model == one.model and s.kind == "backward" for s in record.samples)
    return bool(trained) and trained <= set(one.missing) and backwards >= _SURELY
