"""Parameters that were replaced after the model was wrapped, or after the optimizer was built."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE
from ddpnb.model.events.models import OptimizerSeen, ParametersReplaced
from ddpnb.model.findings import Finding, Severity
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.rules.divergence.parameter_edit import REPLICA_DRIFT
from ddpnb.rules.divergence.settings import OPTIMIZER_DIFFERS


def find(recording: Recording) -> Finding | None:
    # What the optimizer holds and the wrapper does not follows from parameters that were replaced.
    return _replaced(recording) or _stale_optimizer(recording)


def _stale_optimizer(recording: Recording) -> Finding | None:
    """DDP410: the optimizer holds tensors that are not the model's (any more)."""
    stale: dict[int, OptimizerSeen] = {}
    for rank, record in recording.ranks.items():
        optimizers = _as_known_last(record.events(OptimizerSeen))
        for optimizer in optimizers:
            unused = _is_idle(optimizer) and (optimizer.copies or _holds_nothing(record, optimizer))
            whole = not record.events_forgotten  # else another optimizer may hold what is missing
            if (unused and _never_stepped(record, optimizer)) or (whole and _replaced_some(optimizer, optimizers)):
                stale[rank] = optimizer
    if not stale:
        return None
    culprits = tuple(sorted(stale))
    optimizer = stale[culprits[0]]
    missing = optimizer.missing
    return Finding(
        OPTIMIZER_DIFFERS,
        f"The {optimizer.optimizer} on {phrases.ranks(culprits)} does not hold the parameters that are trained: "
        f"{', '.join(missing[:4])} {'is' if len(missing) == 1 else 'are'} never updated.",
        culprits,
        tuple(rank for rank in sorted(recording.ranks) if rank not in stale),
        None,
        known((rank, stale[rank].site) for rank in culprits),
        (f"It holds {optimizer.parameters} tensors, {optimizer.strangers} of which are not in the wrapped model.",),
        "Build the optimizer after the model is on its device and in its final form: optimizer = Optimizer(model.parameters(), ...).",
        tensors=missing[:20],
        certainty="likely",
    )


def _as_known_last(events: Iterable[OptimizerSeen]) -> list[OptimizerSeen]:
    """What is known of each optimizer and model in the end."""
    last: dict[object, OptimizerSeen] = {}
    for number, seen in enumerate(events):
        own = (
            (seen.number if seen.number >= 0 else (seen.optimizer, seen.parameters))
            if seen.idle is not None
            else -number
        )
        last[own, seen.model, seen.idle is None] = seen
    return list(last.values())


def _is_idle(optimizer: OptimizerSeen) -> bool:
    """Whether nothing gives gradients to what it holds beside the model, as far as that is known: another model has some."""
    return optimizer.idle is None or optimizer.idle == optimizer.strangers


def _never_stepped(record: RankRecord, optimizer: OptimizerSeen) -> bool:
    """Whether no optimizer ever used the wrapped model's gradients: otherwise this one belongs to another model."""
    return not any(s.model == optimizer.model and s.kind == "gradients" for s in record.samples)


def _holds_nothing(record: RankRecord, optimizer: OptimizerSeen) -> bool:
    """Whether a model runs backward repeatedly, while this optimizer steps only other tensors."""
    models = [m for m in record.models if m.number == optimizer.model and m.wrapper]
    trained = {t.name for m in models for t in m.parameters if t.trains}
    backwards = sum(s.model == optimizer.model and s.kind == "backward" for s in record.samples)
    return bool(trained) and trained <= set(optimizer.missing) and backwards >= _SURELY


_SURELY = 3  # backward passes after which an optimizer step would have been seen


def _replaced_some(optimizer: OptimizerSeen, optimizers: Iterable[OptimizerSeen]) -> bool:
    """Whether an optimizer holds a part of the model, and as many unused strangers as are missing: some were replaced.

    What it holds nothing of is another model's, and what another optimizer holds is not missing.
    """
    missing = set(optimizer.missing)
    for other in optimizers:
        if other.model == optimizer.model:
            missing &= set(other.missing)
    unused = optimizer.strangers if optimizer.idle is None else optimizer.idle
    return 0 < len(missing) <= unused and optimizer.strangers < optimizer.parameters


def _replaced(recording: Recording) -> Finding | None:
    """DDP405: parameters that came into the module after it was wrapped."""
    replaced = {
        rank: found[0] for rank, record in recording.ranks.items() if (found := record.events(ParametersReplaced))
    }
    if not replaced:
        return None
    culprits = tuple(sorted(replaced))
    names = replaced[culprits[0]].names
    severity: Severity = "error"
    seen = {rank: event.site for rank, event in replaced.items()}
    pointed = dict(seen)
    for rank in culprits:  # where that model was wrapped, too early
        models = [m for m in recording.ranks[rank].models if m.wrapper and m.number == replaced[rank].model]
        wrapped = [m.site for m in models if m.site != NO_SITE]
        pointed[rank] = wrapped[-1] if wrapped else seen[rank]
    return Finding(
        REPLICA_DRIFT,
        f"The model on {phrases.ranks(culprits)} got new parameters after it was wrapped: {', '.join(names[:4])}. "
        "Their gradients are not synchronised.",
        culprits,
        tuple(rank for rank in sorted(recording.ranks) if rank not in replaced),
        None,
        known((rank, pointed[rank]) for rank in culprits),
        tuple(
            f"Rank {rank}: present in the forward{phrases.at(seen[rank])}, absent when the model was wrapped."
            for rank in culprits[:4]
        ),
        "Change the model first, then wrap it (or wrap it again), then build the optimizer.",
        severity,
        names[:20],
    )
