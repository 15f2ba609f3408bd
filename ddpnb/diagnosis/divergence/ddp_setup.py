"""Findings about the setup of models, optimizers and conversions, before anything hangs or diverges."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from ddpnb.diagnosis.divergence.digests import models_of, split
from ddpnb.diagnosis.divergence.optimizers import OPTIMIZER_DIFFERS
from ddpnb.diagnosis.divergence.parameter_edit import REPLICA_DRIFT
from ddpnb.diagnosis.once import once
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.events import Event
from ddpnb.model.events.models import CommHook, ModelWrapped, OptimizerSeen, ParametersReplaced, SyncBatchNormConverted
from ddpnb.model.findings import Finding, FindingType, Severity
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.model.replicas import Model, TensorSpec

WRONG_DEVICE = FindingType("DDP202", "wrong-device")
MODEL_DIFFERS = FindingType("DDP403", "model-differs")
PARAMETER_ORDER = FindingType("DDP404", "parameter-order")
BATCHNORM_SYNC = FindingType("DDP412", "batchnorm-sync")
HOOK_DIFFERS = FindingType("DDP416", "hook-differs")


@once
def find(recording: Recording) -> list[Finding]:
    """Inconsistent setups of the ranks' models, hooks and optimizers."""
    found = []
    for models in models_of(recording).values():
        wrapped = {rank: model for rank, model in models.items() if model.wrapper}
        finding = _devices(wrapped) or models_differ(wrapped)
        if finding is not None:
            found.append(finding)
    changed = _replaced(recording)  # then what the optimizer holds and the wrapper does not follows from it
    others = (comm_hooks_differ(recording), _sync_batchnorm(recording), changed or _stale_optimizer(recording))
    return found + [finding for finding in others if finding is not None]


E = TypeVar("E", bound=Event)


def events(recording: Recording, kind: type[E]) -> dict[int, list[E]]:
    """The events of this kind, by rank."""
    return {rank: record.events(kind) for rank, record in recording.ranks.items()}


def _where(places: Iterable[tuple[int, Site]]) -> tuple[tuple[int, Site], ...]:
    return tuple((rank, site) for rank, site in places if site != NO_SITE)


# -- the model


def _devices(models: Mapping[int, Model]) -> Finding | None:
    """DDP202: parameters or buffers of one model on several devices, or on none."""
    odd: dict[int, tuple[str, ...]] = {}
    for rank, model in models.items():
        places = {tensor.device for tensor in model.tensors}
        if len(places) > 1 and not model.options.get("device_ids") and ("meta" in places or "cpu" in places):
            usual = max(places, key=lambda device: (device != "meta", sum(t.device == device for t in model.tensors)))
            odd[rank] = tuple(t.name for t in model.tensors if t.device != usual)
        elif places == {"meta"}:
            odd[rank] = tuple(t.name for t in model.tensors)
    if not odd:
        return None
    culprits = tuple(sorted(odd))
    names = odd[culprits[0]]
    held = sorted({t.device for t in models[culprits[0]].tensors if t.name in names})
    return Finding(
        WRONG_DEVICE,
        f"On {phrases.ranks(culprits)} a part of {models[culprits[0]].module} is on {', '.join(held)}: {', '.join(names[:4])}"
        f"{' ...' if len(names) > 4 else ''}.",
        culprits,
        (),
        None,
        _where((rank, models[rank].site) for rank in culprits),
        tuple(f"Rank {rank}: {', '.join(odd[rank][:8])}." for rank in culprits[:8]),
        "Move the whole model to the rank's device before it is wrapped: model.to(device) (to_empty(device=...) and "
        "re-initialise what was built on meta).",
        tensors=names[:20],
    )


def models_differ(models: Mapping[int, Model]) -> Finding | None:
    """DDP403 or DDP404: the ranks wrap models with different tensors, or with another order or dtype of the same ones."""
    if len(models) < 2 or len({(m.wrapper, m.group) for m in models.values()}) > 1:
        return None
    made = {rank: tuple((t.name, t.shape, t.dtype, t.trains) for t in m.tensors) for rank, m in models.items()}
    apart = split(made)
    if not apart.differs:
        return None
    culprits = apart.culprits
    usual, others = apart.sides[0], apart.sides[1:]
    odd = tuple(sorted(rank for side in others for rank in side))
    reference = models[usual[0]]
    first = {side[0]: models[side[0]] for side in others}
    shapes = {str(sorted((t.shape, t.buffer, t.trains) for t in m.tensors)) for m in models.values()}
    names = {str(sorted(t.name for t in m.tensors)) for m in models.values()}
    dtypes_alone = all(_dtypes_alone(reference, one) for one in first.values())
    kind = PARAMETER_ORDER if len(shapes) == 1 and (len(names) == 1 or dtypes_alone) else MODEL_DIFFERS
    in_place = all([t.shape for t in one.tensors] == [t.shape for t in reference.tensors] for one in first.values())
    if kind == MODEL_DIFFERS and len(shapes) == 1 and in_place:
        return None  # other names for the same shapes in the same places: a matter of taste
    differences = {rank: _first_differences(reference.tensors, one.tensors) for rank, one in first.items()}
    tensors = tuple(dict.fromkeys(name for _, found in differences.values() for name in found))
    what = {
        (
            PARAMETER_ORDER,
            True,
        ): f"{phrases.verb(odd, 'registers', 'register')} the parameters of {reference.module} in a "
        "different order, or with different dtypes, than",
        (MODEL_DIFFERS, True): f"{phrases.verb(odd, 'wraps', 'wrap')} a different {reference.module} than",
        (
            PARAMETER_ORDER,
            False,
        ): f"register the parameters of {reference.module} in different orders, or with different dtypes",
        (MODEL_DIFFERS, False): f"wrap different {reference.module} models",
    }[kind, bool(culprits)]
    told, _ = differences[others[0][0]]
    if len(others) == 1:
        how = told[0] if culprits else f"on {phrases.ranks(odd)}, {told[0]}"
    else:
        each = phrases.by_side(others, lambda rank: differences[rank][0][0].rstrip("."))
        how = f"compared with {phrases.ranks(usual)}, {each}."
    sides = () if culprits else apart.sides
    return Finding(
        kind,
        f"{phrases.ranks(odd, True)} {what} {phrases.ranks(usual)}: {how}"
        if culprits
        else f"{phrases.ranks(models, True)} {what}: {how}",
        culprits,
        usual if culprits else (),
        None,
        _where((rank, models[rank].site) for rank in (*odd, *usual)),
        (
            "Parameters and buffers: "
            + phrases.by_side(
                apart.sides, lambda rank: f"{len(models[rank].parameters)} and {len(models[rank].buffers)}"
            )
            + ".",
            *(told[1:4] if len(others) == 1 else ()),
            *phrases.undecided(sides),
        ),
        "Build the model from the same configuration on all ranks, in the same order: DistributedDataParallel matches "
        "parameters by position, not by name."
        if kind == PARAMETER_ORDER
        else "Build the same model on all ranks: sizes that depend on data (vocabulary, classes) must be agreed on first.",
        tensors=tensors[:20],
        sides=sides,
    )


def _dtypes_alone(one: Model, other: Model) -> bool:
    return [(t.name, t.shape) for t in one.tensors] == [(t.name, t.shape) for t in other.tensors]


def _first_differences(one: tuple[TensorSpec, ...], other: tuple[TensorSpec, ...]) -> tuple[list[str], tuple[str, ...]]:
    told, names = [], []
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if (a.name, a.shape, a.dtype, a.trains) != (b.name, b.shape, b.dtype, b.trains):
            told.append(f"number {place} is {_spec(b)} instead of {_spec(a)}.")
            names.append(b.name)
    longer = other if len(other) > len(one) else one
    for extra in longer[min(len(one), len(other)) :]:
        told.append(f"{_spec(extra)} is {'extra' if longer is other else 'missing'}.")
        names.append(extra.name)
    return told or ["the tensors differ."], tuple(names)


def _spec(tensor: TensorSpec) -> str:
    text = f"{tensor.name} ({tensor.dtype} {list(tensor.shape)})"
    return text if tensor.trains or tensor.buffer else f"{text[:-1]}, frozen)"


# -- hooks and conversions


@once
def comm_hooks_differ(recording: Recording) -> Finding | None:
    """DDP416: communication hooks differ between ranks."""
    if sum(any(m.wrapper for m in record.models) for record in recording.ranks.values()) < 2:
        return None
    hooks = events(recording, CommHook)
    told = {
        rank: tuple((hook.hook, hook.state_class, _settings(hook)) for hook in registered)
        for rank, registered in hooks.items()
        if recording.ranks[rank].models and not recording.ranks[rank].events_forgotten
    }
    apart = split(told)
    if not apart.differs:
        return None
    sites = {rank: hooks[rank][-1].site if hooks[rank] else recording.ranks[rank].models[0].site for rank in told}
    culprits = apart.culprits
    others = tuple(rank for rank in sorted(told) if rank not in culprits)
    sides = () if culprits else apart.sides
    return Finding(
        HOOK_DIFFERS,
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'uses', 'use')} a different communication hook than {phrases.ranks(others)}."
        if culprits
        else f"{phrases.ranks(told, True)} use different communication hooks.",
        culprits,
        others if culprits else (),
        None,
        _where((rank, sites[rank]) for rank in (*culprits, *others)),
        tuple(
            f"Rank {rank}: {', '.join(f'{name} {settings}'.strip() for name, _, settings in told[rank]) or 'no hook'}."
            for rank in sorted(told)[:8]
        )
        + tuple(phrases.undecided(sides)),
        "Register the same communication hook, with the same settings, on all ranks.",
        sides=sides,
    )


_PERSONAL = re.compile(r"rank|device|seed|host|name|path|^id$", re.IGNORECASE)


def _settings(hook: CommHook) -> str:
    """The settings of a hook, without those that may differ between ranks."""
    settings = sorted(hook.settings.items())
    return ", ".join(f"{name}={value}" for name, value in settings if not _PERSONAL.search(name))[:400]


def _sync_batchnorm(recording: Recording) -> Finding | None:
    """DDP412: converted after wrapping (the wrapper does not know the new layers), or on some ranks only."""
    conversions = events(recording, SyncBatchNormConverted)
    late = {rank: [c for c in made if _after_wrap(recording.ranks[rank], c)] for rank, made in conversions.items()}
    culprits = tuple(rank for rank, made in sorted(late.items()) if made)
    if culprits:
        return Finding(
            BATCHNORM_SYNC,
            f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'converts', 'convert')} BatchNorm to SyncBatchNorm after the model was "
            "wrapped: the wrapper keeps the old layers.",
            culprits,
            (),
            None,
            _where((rank, late[rank][-1].site) for rank in culprits),
            tuple(f"Rank {rank} converted {late[rank][-1].layers} layers after wrapping." for rank in culprits[:8]),
            "Convert, then wrap: model = SyncBatchNorm.convert_sync_batchnorm(model); model = DistributedDataParallel(model).",
        )
    wrapped = {rank: record for rank, record in recording.ranks.items() if any(m.wrapper for m in record.models)}
    kinds = {
        rank: sum(t.kind == "SyncBatchNorm" for m in record.models for t in m.tensors)
        or sum(conversion.layers for conversion in conversions[rank])
        for rank, record in wrapped.items()
        if not record.events_forgotten
    }
    if len(kinds) > 1 and len(set(kinds.values())) > 1:
        apart = split(kinds)
        sides = apart.sides if apart.tied else ()
        odd = apart.odd
        others = tuple(rank for rank in sorted(kinds) if rank not in odd)
        places = [
            (r, conversions[r][-1].site if conversions[r] else wrapped[r].models[0].site) for r in (*odd, *others)
        ]
        return Finding(
            BATCHNORM_SYNC,
            "BatchNorm is converted to SyncBatchNorm differently on the ranks: "
            f"{phrases.by_side(apart.sides, lambda rank: str(kinds[rank]))} (tensors of SyncBatchNorm layers).",
            apart.culprits,
            () if sides else others,
            None,
            _where(places),
            (
                *(f"Rank {rank}: {count}." for rank, count in sorted(kinds.items())[:8]),
                *phrases.undecided(sides),
            ),
            "Convert on all ranks or on none, before the model is wrapped.",
            sides=sides,
        )
    return None


def _after_wrap(record: RankRecord, conversion: SyncBatchNormConverted) -> bool:
    if conversion.wrapped:
        return True
    wraps = record.events(ModelWrapped, state="done")
    # A model that is converted after a wrapping and never wrapped again.
    return bool(wraps) and all(wrap.began_ns < conversion.began_ns for wrap in wraps)


# -- the optimizer


def _stale_optimizer(recording: Recording) -> Finding | None:
    """DDP410: the optimizer holds tensors that are not the model's (any more)."""
    stale: dict[int, OptimizerSeen] = {}
    for rank, record in recording.ranks.items():
        optimizers = record.events(OptimizerSeen)
        for optimizer in optimizers:
            unused = optimizer.copies or _holds_nothing(record, optimizer)
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
        _where((rank, stale[rank].site) for rank in culprits),
        (f"It holds {optimizer.parameters} tensors, {optimizer.strangers} of which are not in the wrapped model.",),
        "Build the optimizer after the model is on its device and in its final form: optimizer = Optimizer(model.parameters(), ...).",
        tensors=missing[:20],
        certainty="likely",
    )


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
    """Whether an optimizer holds a part of the model, and as many strangers as are missing: some were replaced.

    What it holds nothing of is another model's, and what another optimizer holds is not missing.
    """
    missing = set(optimizer.missing)
    for other in optimizers:
        if other.model == optimizer.model:
            missing &= set(other.missing)
    return 0 < len(missing) <= optimizer.strangers < optimizer.parameters


def _replaced(recording: Recording) -> Finding | None:
    """DDP405: parameters that came into the module after it was wrapped."""
    replaced = {rank: found[0] for rank, found in events(recording, ParametersReplaced).items() if found}
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
        _where((rank, pointed[rank]) for rank in culprits),
        tuple(
            f"Rank {rank}: present in the forward{phrases.at(seen[rank])}, absent when the model was wrapped."
            for rank in culprits[:4]
        ),
        "Change the model first, then wrap it (or wrap it again), then build the optimizer.",
        severity,
        names[:20],
    )
