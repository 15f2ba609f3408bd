"""Findings about replicas that silently part: what, since which step, on which ranks, by whose doing.

Every rule is one of elimination. Gradients differ although parameters agreed: they were not
synchronised, or changed afterwards. Parameters differ after a step although gradients agreed: the
optimizers differ. Parameters differ at a forward although they agreed after the step before: the
script changed them in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ddpnb.analysis import phrases
from ddpnb.analysis.silent.drift import (
    Difference,
    by_turn,
    changed_since,
    differing,
    extent,
    first_difference,
    minority,
    models_of,
)
from ddpnb.analysis.source import suspects
from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.findings import Finding, Severity
from ddpnb.model.recording import Phase, Recording
from ddpnb.model.replicas import Model, Sample
from ddpnb.model.samples import tensor_name

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def find(recording: Recording) -> list[Finding]:
    """The first thing that went wrong with the replicas of each model."""
    found: list[Finding] = []
    if any(phase.name == "join" for record in recording.ranks.values() for phase in record.phases):
        return found  # ranks that have joined fall behind until the last of them gives its model to all
    for number, models in models_of(recording).items():
        if len(models) < 2 or not comparable(models):
            continue
        finding = _of_model(recording, number, models)
        if finding is not None:
            found.append(finding)
    return found


def comparable(models: Mapping[int, Model]) -> bool:
    """Whether these are replicas: wrapped alike, on one group, with the same tensors."""
    return len({(m.wrapper, m.group, tuple((t.name, t.shape) for t in m.tensors)) for m in models.values()}) == 1


def _of_model(recording: Recording, number: int, models: dict[int, Model]) -> Finding | None:
    model = models[min(models)]
    ignored = {tensor.name for tensor in model.tensors if tensor.ignored}
    parameters = [u for u in _units(recording, number) if not _is_buffer(model, u) and tensor_name(u) not in ignored]
    drift = first_difference(recording, number, names=parameters)
    if not model.wrapper:
        return _by_hand(recording, number, model)
    for cause in (
        _bypassed(recording, number, model, drift),
        _sync_differs(recording, number, model),
        _hyper_differ(recording, number, model),
        _drifted(recording, model, drift),
        _buffers(recording, number, model),
        _left_alone(recording, number, model, ignored),
    ):
        if cause is not None:
            return cause
    return None


def _units(recording: Recording, number: int) -> list[str]:
    """All parts of tensors that occur in the samples of a model, in the model's order."""
    found: dict[str, None] = {}
    for record in recording.ranks.values():
        for sample in record.samples:
            if sample.model == number:
                found.update(dict.fromkeys(sample.digests))
    return list(found)


def _is_buffer(model: Model, unit: str) -> bool:
    return any(tensor.name == unit.partition("[")[0] for tensor in model.buffers)


# -- gradients that were not synchronised


def _bypassed(recording: Recording, number: int, model: Model, drift: Difference | None) -> Finding | None:
    """DDP407: backward and optimizer steps without a forward of the wrapper."""
    for turn, samples in by_turn(recording, number, "gradients").items():
        past = {r: s for r, s in samples.items() if s.number("backwards") and not s.number("forwards")}
        if not past:
            continue
        if len(past) == len(samples) and (drift is None or (drift.kind, drift.turn) < ("gradients", turn)):
            return None  # they agree all the same: somebody averages by hand
        culprits = tuple(sorted(past))
        waiting = tuple(rank for rank in sorted(samples) if rank not in past)
        where = tuple((rank, suspects.bypass(recording, sample)) for rank, sample in sorted(past.items()))
        return Finding(
            "DDP407",
            f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'trains', 'train')} the wrapped {model.module} "
            f"without going through {model.wrapper}: no gradient of it is synchronised.",
            culprits,
            waiting,
            None,
            _known(where),
            (
                f"Before optimizer step {turn} the module ran backward on {phrases.ranks(culprits)}, but "
                f"{model.wrapper}'s own forward was never called since the step before.",
                *_differ(drift),
            ),
            f"Call the wrapper itself: output = model(input), not model.module(input). {model.wrapper} is what "
            "prepares the synchronisation of the gradients.",
            tensors=drift.tensors[:20] if drift else (),
        )
    return None


def _sync_differs(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP408: forwards under no_sync on some ranks, or accumulation over other numbers of forwards."""
    for turn, samples in by_turn(recording, number, "forward").items():
        flags = {rank: sample.number("sync") for rank, sample in samples.items()}
        culprits = minority(flags)
        if culprits:
            says = {1.0: "synchronises", 0.0: "is under no_sync"}
            evidence = [
                f"{phrases.ranks([r for r in samples if flags[r] == flag], True)}: forward {turn} {words}."
                for flag, words in says.items()
                if flag in flags.values()
            ]
            return silent(
                recording,
                "DDP408",
                f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'does', 'do')} not synchronise gradients in the "
                f"same backward passes as the others, from forward {turn} of {model.module} on.",
                samples,
                culprits,
                evidence,
                "Enter no_sync() on all ranks in the same micro-steps: decide by the step's number alone, and let all "
                "ranks accumulate over equally many batches.",
                suspects.SYNC,
            )
    for turn, samples in by_turn(recording, number, "gradients").items():
        counts = {rank: sample.number("synced") for rank, sample in samples.items()}
        culprits = minority(counts)
        # A forward whose backward was left out is another matter.
        complete = all(s.number("forwards") and s.number("forwards") == s.number("backwards") for s in samples.values())
        if culprits and complete and not _rarely(recording, number):
            return silent(
                recording,
                "DDP408",
                f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'makes', 'make')} optimizer step {turn} after "
                "another number of synchronised backward passes than the others.",
                samples,
                culprits,
                [
                    f"Rank {rank}: {sample.number('forwards') or 0:.0f} forwards, {count or 0:.0f} of them synchronised, "
                    f"before optimizer step {turn}."
                    for (rank, sample), count in zip(
                        sorted(samples.items()), [counts[r] for r in sorted(counts)], strict=True
                    )
                ][:8],
                "Accumulate over equally many batches on all ranks, and step the optimizer after the same ones.",
                suspects.SYNC,
            )
    return None


def _rarely(recording: Recording, number: int) -> bool:
    """Whether most optimizer steps follow a single forward: then steps were left out, not batches accumulated."""
    counts = [
        s.number("forwards")
        for r in recording.ranks.values()
        for s in r.samples
        if (s.model, s.kind) == (number, "gradients")
    ]
    return sum(count == 1 for count in counts) > len(counts) / 2


# -- parameters that part


def _hyper_differ(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP410: the optimizers' own settings differ."""
    skip = {"forwards", "synced", "backwards", "bypass", "bypass_site", "outstanding"}
    for turn, samples in by_turn(recording, number, "gradients").items():
        if len(samples) < 2:
            continue
        names = dict.fromkeys(name for sample in samples.values() for name in sample.facts if name not in skip)
        for name in names:
            values = {rank: sample.facts.get(name) for rank, sample in samples.items()}
            culprits = minority(values)
            if culprits:
                told = sorted({str(value): None for value in values.values()})
                return silent(
                    recording,
                    "DDP410",
                    f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'takes', 'take')} optimizer step {turn} of "
                    f"{model.module} with another {name} than the others.",
                    samples,
                    culprits,
                    [
                        f"{name} is {_number(value)} on {phrases.ranks([r for r in values if str(values[r]) == value])}."
                        for value in told[:6]
                    ],
                    "Give the optimizer the same settings on all ranks, and step schedulers on all ranks alike "
                    "(decide by values that all ranks share: reduce the metric first).",
                    suspects.OPTIMIZER,
                )
    return None


def _drifted(recording: Recording, model: Model, found: Difference | None) -> Finding | None:
    if found is None:
        return None
    if found.kind == "forward":
        return _edited(recording, model, found)
    if found.kind == "gradients":
        return _gradients(recording, model, found)
    if found.turn == 1:
        return _unlike_from_the_start(recording, model, found)
    return _other_update(recording, model, found)


def _unlike_from_the_start(recording: Recording, model: Model, found: Difference) -> Finding:
    """DDP405: the wrapper did not make them equal."""
    told = "what the wrapper broadcast did not reach them"
    if model.options.get("init_sync") is False:
        told = "it was made with init_sync=False, so nothing was broadcast"
    finding = silent(
        recording,
        "DDP405",
        f"The replicas of {model.module} are not the same when they are wrapped: {told}.",
        found.samples,
        found.odd,
        _differ(found),
        "Let the wrapper broadcast (init_sync=True, the default), or make sure that all ranks start from the same values.",
        suspects.NONE,
        tensors=found.tensors,
    )
    models = models_of(recording)[found.model]
    return _with_where(finding, _known((rank, m.site) for rank, m in sorted(models.items())))


def _edited(recording: Recording, model: Model, found: Difference) -> Finding:
    """DDP405 or DDP601: somebody changed parameters between a step and the next forward."""
    turns = by_turn(recording, found.model, "forward")
    steps = {rank: sample.step for rank, sample in found.samples.items()}
    if len(set(steps.values())) > 1:  # a rank that has stepped less often
        return _steps_differ(recording, model, found, steps)
    changed = changed_since(recording, found, found.units)
    culprits = changed if changed and len(changed) < len(found.samples) else found.odd
    loaded = loads(recording, "model")
    # A load before this forward on some ranks only is the reason.
    early = {
        rank: [p for p in phases if p.began_ns <= found.samples[rank].at_ns]
        for rank, phases in loaded.items()
        if rank in found.samples
    }
    loaders = tuple(rank for rank, phases in sorted(early.items()) if phases)
    evidence = [
        f"Before forward {found.turn} (after {found.samples[culprits[0]].step} optimizer steps) "
        f"{_count(found.tensors)} {phrases.verb(culprits, 'is', 'are') if len(found.tensors) == 1 else 'are'} no longer the same: {', '.join(found.tensors[:6])}.",
    ]
    if changed:
        evidence.append(
            f"{phrases.ranks(changed, True)} changed them after the optimizer's step, outside of training; the others did not."
        )
    evidence += _differ(found)
    if found.turn - 1 in turns:
        evidence.append(f"At forward {found.turn - 1} all ranks still held the same.")
    sites = {rank: _site(phases[-1]) for rank, phases in early.items() if phases}
    read = [r for r in loaders if any(p.name == "checkpoint read" for p in recording.ranks[r].phases)]
    if read and len(loaders) < len(found.samples):
        return Finding(
            "DDP601",
            f"{phrases.ranks(loaders, True)} loaded a state into {model.module}, the others did not: the replicas differ "
            f"from forward {found.turn} on.",
            loaders,
            tuple(rank for rank in sorted(found.samples) if rank not in loaders),
            None,
            _known(tuple((rank, sites[rank]) for rank in loaders)),
            tuple(evidence),
            "Load the checkpoint on all ranks, or on rank 0 before the model is wrapped: DistributedDataParallel "
            "broadcasts parameters and buffers from rank 0 when it is made, and never again.",
            tensors=found.tensors[:20],
        )
    finding = silent(
        recording,
        "DDP405",
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'holds', 'hold')} other parameters of {model.module} than the "
        f"others since forward {found.turn}: {', '.join(found.tensors[:3])}{' ...' if len(found.tensors) > 3 else ''}.",
        found.samples,
        culprits,
        evidence,
        "Change parameters on all ranks alike, or before the model is wrapped, or broadcast them afterwards: "
        "for p in model.parameters(): dist.broadcast(p.data, src=0).",
        suspects.PARAMETERS,
        tensors=found.tensors,
    )
    if loaders == culprits:  # what they loaded came from their own memory, and this is where
        finding = _with_where(finding, _known((rank, sites[rank]) for rank in culprits))
    return finding


def _steps_differ(recording: Recording, model: Model, found: Difference, steps: dict[int, int]) -> Finding:
    culprits = minority(steps)
    return silent(
        recording,
        "DDP410",
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'has', 'have')} made another number of optimizer steps than the "
        f"others by forward {found.turn} of {model.module}.",
        found.samples,
        culprits,
        [
            f"Rank {rank}: {count} optimizer steps before forward {found.turn}."
            for rank, count in sorted(steps.items())[:8]
        ]
        + _differ(found),
        "Step the optimizer on all ranks or on none: decide together (reduce the flag first).",
        suspects.OPTIMIZER,
        tensors=found.tensors,
    )


def _gradients(recording: Recording, model: Model, found: Difference) -> Finding:
    """DDP409: synchronised gradients that differ when the optimizer takes them."""
    if all(s.number("forwards") and s.number("synced") == 0 for s in found.samples.values()):
        return _never_synchronised(recording, model, found)
    absent = {
        rank for rank, s in found.samples.items() if any(s.digests[u].hash == 0 for u in found.units if u in s.digests)
    }
    missing = absent if absent and len(absent) < len(found.samples) else set()
    culprits = tuple(sorted(missing)) or found.odd
    evidence = [
        f"All ranks held the same parameters in the forward before, and {model.wrapper} synchronised; yet before optimizer "
        f"step {found.turn} the gradients of {', '.join(found.tensors[:6])} differ.",
        *_differ(found),
    ]
    if missing:
        evidence.append(f"{phrases.ranks(missing, True)} {phrases.verb(missing, 'has', 'have')} no gradient for them.")
    return silent(
        recording,
        "DDP409",
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'changes', 'change')} the gradients of {model.module} after they were "
        f"synchronised, or they never were, before optimizer step {found.turn}.",
        found.samples,
        culprits,
        evidence,
        "Scale and clip gradients by the same numbers on all ranks, after the synchronisation.",
        suspects.GRADIENTS,
        tensors=found.tensors,
    )


def _never_synchronised(recording: Recording, model: Model, found: Difference) -> Finding:
    """DDP408: no forward since the step before was one after which backward synchronises, on any rank."""
    return silent(
        recording,
        "DDP408",
        f"No rank synchronises the gradients of {model.module} before optimizer step {found.turn}.",
        found.samples,
        tuple(sorted(found.samples)),
        [
            f"Rank {rank}: {sample.number('forwards'):.0f} forwards since the step before, all of them under no_sync()."
            for rank, sample in sorted(found.samples.items())[:8]
        ]
        + _differ(found),
        "Leave no_sync() before the last backward of each step, also where the batches of an epoch do not come out even.",
        suspects.SYNC,
        tensors=found.tensors,
        wanted=re.compile(r"no_sync|require_backward_grad_sync"),
    )


def _other_update(recording: Recording, model: Model, found: Difference) -> Finding:
    """DDP410 or DDP605: the same parameters and gradients, yet other parameters after the step."""
    restored = {
        rank: [p for p in phases if p.began_ns <= found.samples[rank].at_ns]
        for rank, phases in loads(recording, "optimizer").items()
        if rank in found.samples
    }
    loaders = tuple(rank for rank, phases in sorted(restored.items()) if phases)
    evidence = [
        f"Parameters and gradients agreed before optimizer step {found.turn - 1}; after it {', '.join(found.tensors[:6])} differ: "
        "the optimizers' own states are not the same.",
        *_differ(found),
    ]
    if loaders and len(loaders) < len(found.samples):
        return Finding(
            "DDP605",
            f"{phrases.ranks(loaders, True)} restored the state of the optimizer, the others did not: the replicas part at "
            f"optimizer step {found.turn - 1}.",
            loaders,
            tuple(rank for rank in sorted(found.samples) if rank not in loaders),
            None,
            _known(tuple((rank, _site(restored[rank][-1])) for rank in loaders)),
            tuple(evidence),
            "Load the optimizer's (and the scaler's) state on every rank.",
            tensors=found.tensors[:20],
        )
    return silent(
        recording,
        "DDP410",
        f"The optimizer of {phrases.ranks(found.odd)} changes {model.module} otherwise than that of the others, from step "
        f"{found.turn - 1} on.",
        found.samples,
        found.odd,
        evidence,
        "Build the optimizer alike on all ranks, and load or reset its state on all of them.",
        suspects.OPTIMIZER,
        tensors=found.tensors,
    )


def together(recording: Recording, number: int, models: Mapping[int, Model]) -> bool:
    """Whether these models are replicas of each other, and not merely alike: wrapped, or kept equal by hand."""
    model = models[min(models)]
    return comparable(models) and bool(model.wrapper or _by_hand_together(recording, number, model) is not None)


def _by_hand_together(recording: Recording, number: int, model: Model) -> list[str] | None:
    """The states in which all ranks held the same, step by step; None where nothing says that these are replicas.

    They are if their gradients are averaged, or if they stayed equal over two steps.
    """
    ranks = len(recording.ranks)
    updated = {t: s for t, s in by_turn(recording, number, "updated").items() if len(s) == ranks}
    gradients = [s for s in by_turn(recording, number, "gradients").values() if len(s) == ranks]
    averaged = [
        s for s in gradients if not differing(s) and any(d.hash for d in next(iter(s.values())).digests.values())
    ]
    agreed = []
    for samples in updated.values():
        if differing(samples):
            break
        agreed.append(str(sorted((name, d.hash) for name, d in next(iter(samples.values())).digests.items())))
    proven = len(set(agreed)) > 1 or (len(averaged) > 1 and not _inputs_never_differ(recording))
    return agreed if proven or model.options.get("sharded") else None


def _by_hand(recording: Recording, number: int, model: Model) -> Finding | None:
    """A model without a wrapper, if the ranks' are replicas."""
    agreed = _by_hand_together(recording, number, model)
    if agreed is None:
        return None
    sharded = bool(model.options.get("sharded"))
    hyper = _hyper_differ(recording, number, model)
    found = first_difference(recording, number, kinds=("updated",))
    if hyper is not None or found is None:
        return hyper
    if sharded:
        evidence = (
            "The rest of the model is sharded; these parameters are not, and nobody synchronises their gradients."
        )
    elif agreed:
        evidence = (
            f"After {len(agreed)} optimizer steps all ranks held the same parameters, and no longer after the next."
        )
    else:
        evidence = "The gradients are averaged in every step, but the parameters were never the same."
    return silent(
        recording,
        "DDP405",
        f"{phrases.ranks(found.odd, True)} {phrases.verb(found.odd, 'holds', 'hold')} other parameters than the others since optimizer "
        f"step {found.turn}: {', '.join(found.tensors[:3])}.",
        found.samples,
        found.odd,
        [evidence, *_differ(found)],
        "Let all ranks start from the same values (broadcast into the parameters themselves) and average the gradients of "
        "all parameters before every step, or let DistributedDataParallel do it.",
        suspects.PARAMETERS,
        tensors=found.tensors,
        wanted=None if agreed or sharded else re.compile(r"broadcast"),
    )


def _taken_early(recording: Recording, number: int) -> Finding | None:
    """DDP316: the optimizer takes gradients whose averaging is still on its way."""
    for turn, samples in by_turn(recording, number, "gradients").items():
        ranks = tuple(sorted(rank for rank, sample in samples.items() if sample.number("outstanding")))
        if ranks and len(samples) > 1 and differing(samples):
            return Finding(
                "DDP316",
                f"Optimizer step {turn} takes gradients while calls that average them are still on their way on {phrases.ranks(ranks)}.",
                tuple(sorted(samples)),
                (),
                None,
                _known((rank, sample.site) for rank, sample in sorted(samples.items())),
                tuple(
                    f"Rank {rank}: {samples[rank].number('outstanding'):.0f} calls that nobody has waited for."
                    for rank in ranks[:8]
                ),
                "Wait for all handles (for work in pending: work.wait()) before optimizer.step().",
            )
    return None


def _inputs_never_differ(recording: Recording) -> bool:
    """Whether all ranks had the same losses: equal gradients then prove nothing."""
    losses = [tuple(s.number("loss") for s in r.samples if s.kind == "backward") for r in recording.ranks.values()]
    return len(set(losses)) < 2


def _left_alone(recording: Recording, number: int, model: Model, ignored: set[str]) -> Finding | None:
    """DDP405: parameters that the wrapper was told to ignore, that began alike and are trained apart."""
    units = [unit for unit in _units(recording, number) if tensor_name(unit) in ignored]
    turns = by_turn(recording, number, "forward")
    if not units or 1 not in turns or len(turns[1]) < 2 or differing(turns[1], units):
        return None
    found = first_difference(recording, number, kinds=("forward", "updated"), names=units)
    if found is None:
        return None
    ranks = tuple(sorted(found.samples))
    return silent(
        recording,
        "DDP405",
        f"{', '.join(found.tensors[:3])} of {model.module} {phrases.verb(set(range(len(found.tensors))), 'is', 'are')} left out by {model.wrapper} and "
        f"{phrases.verb(set(range(len(found.tensors))), 'differs', 'differ')} between ranks since forward {found.turn}.",
        found.samples,
        ranks,
        ["The ranks began with the same values, and the optimizer trains them on each rank apart.", *_differ(found)],
        "Let the wrapper have all parameters that are trained, or synchronise these gradients by hand.",
        suspects.NONE,
        tensors=found.tensors,
        wanted=re.compile(r"to_ignore"),
    )


def _buffers(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP406: buffers differ in a forward, where nothing brings them together."""
    names = [unit for unit in _units(recording, number) if _is_buffer(model, unit)]
    if not names:
        return None
    told = [p.facts for r in recording.ranks.values() for p in r.phases if p.name == "buffers synced"]
    broadcast = all(bool(facts.get("synced", True)) for facts in told if facts.get("model") == number)
    for turn, samples in by_turn(recording, number, "forward").items():
        synced = [bool(sample.number("buffers_synced")) for sample in samples.values()]
        # After a forward under no_sync they meet again one forward later.
        if len(samples) < 2 or (broadcast and not all(synced) and turn > 1):
            continue
        units = differing(samples, names)
        if not units:
            continue
        statistics = all(unit.partition("[")[0].endswith(_STATISTICS) for unit in units)
        held = {
            rank: tuple(sample.digests[u].hash for u in units if u in sample.digests)
            for rank, sample in samples.items()
        }
        culprits = tuple(sorted(samples)) if statistics else minority(held)
        tensors = tuple(dict.fromkeys(unit.partition("[")[0] for unit in units))
        why = (
            f"{model.wrapper} was told not to synchronise buffers: every rank keeps statistics of its own batches."
            if not broadcast
            else f"{model.wrapper} has broadcast them, and they differ all the same."
        )
        finding = silent(
            recording,
            "DDP406",
            f"The buffers of {model.module} differ between ranks since forward {turn}: {', '.join(tensors[:3])}"
            f"{' ...' if len(tensors) > 3 else ''}.",
            samples,
            culprits,
            [why, *([f"{units[0]}: norm {extent(samples, units[0])}."] if extent(samples, units[0]) else [])],
            "Let the wrapper synchronise buffers (the default), or use SyncBatchNorm; otherwise evaluate and save from one rank only."
            if statistics
            else "Change buffers on all ranks alike, or broadcast them.",
            suspects.BUFFERS,
            tensors=tensors,
        )
        if statistics:  # nobody did it: the line is where the model was wrapped
            places = tuple((rank, m.site) for rank, m in sorted(models_of(recording)[number].items()))
            finding = _with_where(finding, _known(places))
        return finding
    return None


# -- words and places


def loads(recording: Recording, what: str) -> dict[int, list[Phase]]:
    """For each rank the events in which a state was loaded into a model (or optimizer, scaler)."""
    return {
        rank: [p for p in record.phases if p.name == "state loaded" and p.facts.get("what") == what]
        for rank, record in recording.ranks.items()
    }


def _site(phase: Phase) -> Site:
    return Site.from_json(dict(phase.facts)) if "file" in phase.facts else NO_SITE


def _known(places: Iterable[tuple[int, Site]]) -> tuple[tuple[int, Site], ...]:
    return tuple((rank, site) for rank, site in places if site != NO_SITE)


def _with_where(finding: Finding, where: tuple[tuple[int, Site], ...]) -> Finding:
    return replace(finding, where=where)


def _differ(found: Difference | None) -> list[str]:
    if found is None:
        return []
    for unit in found.units:
        told = extent(found.samples, unit)
        if told:
            return [f"{unit}: norm {told}."]
    return []


def _count(tensors: tuple[str, ...]) -> str:
    return f"{len(tensors)} tensor{'s' * (len(tensors) != 1)}"


def _number(text: str) -> str:
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return text


def silent(
    recording: Recording,
    code: str,
    summary: str,
    samples: Mapping[int, Sample],
    culprits: tuple[int, ...],
    evidence: Iterable[str],
    remedy: str,
    words: suspects.Words,
    tensors: tuple[str, ...] = (),
    severity: Severity = "error",
    wanted: suspects.Words | None = None,
) -> Finding:
    """A finding whose culprits are pointed to by their source: a line that only they run, if there is one."""
    waiting = tuple(rank for rank in sorted(samples) if rank not in culprits)
    places, reasons = suspects.lines(recording, samples, culprits, words, tensors, wanted)
    return Finding(
        code, summary, culprits, waiting, None, _known(places), (*evidence, *reasons), remedy, severity, tensors[:20]
    )
