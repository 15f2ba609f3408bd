"""Findings about replicas that silently diverge: what differs, since which step, on which ranks, caused by which ranks.

Every rule is one of elimination. Gradients differ although parameters agreed: they were not
synchronised, or changed afterwards. Parameters differ after a step although gradients agreed: the
optimizers differ. Parameters differ at a forward although they agreed after the step before: the
script changed them in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ddpnb.facts.digests import (
    Difference,
    Past,
    agree_again,
    by_turn,
    comparable,
    differing,
    extent,
    first_difference,
    last_agreed,
    models_of,
    split,
    units_of,
    values_of,
)
from ddpnb.facts.once import once
from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.events.data import JoinEntered
from ddpnb.model.events.models import BuffersSynced, CommHook, ParametersIgnored
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.model.replicas import Model, Sample
from ddpnb.model.samples import tensor_name
from ddpnb.rules.divergence.between_runs import differ_since, is_of_earlier_run
from ddpnb.rules.divergence.builder import finding_of, how_far, placed, since_steps
from ddpnb.rules.divergence.manual_replicas import by_hand
from ddpnb.rules.divergence.optimizers import SCALING_DIFFERS, other_update, scaler_differs
from ddpnb.rules.divergence.parameter_edit import PARTIAL_LOAD, REPLICA_DRIFT, edited, holding
from ddpnb.rules.divergence.settings import hyper_differ
from ddpnb.rules.divergence.synchronisation import (
    averages_itself,
    bypassed,
    last_synchronised,
    never_synchronised,
    sync_differs,
)
from ddpnb.rules.divergence.unfrozen import unfrozen

BUFFER_DRIFT = FindingType("DDP406", "buffer-drift")

_SOON = 4  # forwards
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@once
def find(recording: Recording) -> list[Finding]:
    """The first thing that went wrong with the replicas of each model."""
    found: list[Finding] = []
    if any(_diverge_by_design(record) for record in recording.ranks.values()):
        return found
    for number, models in models_of(recording).items():
        if len(models) < 2 or not comparable(models):
            continue
        finding = _of_model(recording, number, models)
        if finding is not None:
            found.append(finding)
    return found


def _diverge_by_design(record: RankRecord) -> bool:
    """Whether replicas diverge by design: ranks that have joined fall behind until the last gives its model to all,
    and local SGD averages the parameters every now and then.
    """
    hooks = record.events(CommHook)
    return bool(record.events(JoinEntered)) or any(hook.hook.endswith(".post_localSGD_hook") for hook in hooks)


def _of_model(recording: Recording, number: int, models: dict[int, Model]) -> Finding | None:
    model = models[min(models)]
    ignored = {tensor.name for tensor in model.tensors if tensor.ignored}
    parameters = [u for u in units_of(recording, number) if not _is_buffer(model, u) and tensor_name(u) not in ignored]
    drift = first_difference(recording, number, names=parameters)
    if not model.wrapper:
        return by_hand(recording, number, model)
    if drift is not None and _other_pace(recording, drift):
        drift = first_difference(recording, number, kinds=("gradients", "updated"), names=parameters)
    if drift is not None and averages_itself(recording, model, drift):
        return None
    for cause in (
        bypassed(recording, number, model, drift),
        sync_differs(recording, number, model),
        hyper_differ(recording, number, model),
        scaler_differs(recording, number),
        _drifted(recording, model, drift),
        _buffers(recording, number, model),
        _left_alone(recording, number, model, ignored),
    ):
        if cause is not None:
            return cause
    return None


def _other_pace(recording: Recording, found: Difference) -> bool:
    """Whether ranks only took other numbers of forwards to the same optimizer steps, after which they agree."""
    if found.kind != "forward" or len({sample.step for sample in found.samples.values()}) == 1:
        return False
    records = [recording.ranks[rank] for rank in found.samples]
    ended = all(record.ending is not None and record.ending.well for record in records)
    if ended and len({record.steps for record in records}) > 1:
        return False  # one left out steps
    whole = len(found.samples)
    steps = [looked for looked in by_turn(recording, found.model, "updated").values() if len(looked) == whole]
    taken = by_turn(recording, found.model, "gradients").values()
    alike = all(
        len({sample.number("synced") for sample in looked.values()}) == 1 for looked in taken if len(looked) == whole
    )
    return alike and len(steps) > 1 and not any(differing(looked, found.units) for looked in steps)


def _is_buffer(model: Model, unit: str) -> bool:
    return any(tensor.name == unit.partition("[")[0] for tensor in model.buffers)


def _drifted(recording: Recording, model: Model, found: Difference | None) -> Finding | None:
    if found is None:
        return None
    if found.kind == "forward":
        return _unless_for_a_moment(recording, found, edited(recording, model, found))
    if found.kind == "gradients":
        return _gradients(recording, model, found)
    if found.turn == 1 and is_of_earlier_run(model):
        return differ_since(recording, model, found) or _in_between(recording, model, found)
    if found.turn == 1:
        return _unlike_from_the_start(recording, model, found)
    looked = {
        rank
        for rank, there in found.samples.items()
        for sample in recording.ranks[rank].samples
        if (sample.model, sample.kind, sample.step) == (found.model, "gradients", there.step - 1)
    }
    if any(looked.isdisjoint(side) for side in found.sides):  # that the gradients agreed is not known
        return _in_between(recording, model, found)
    return other_update(recording, model, found)


def _unless_for_a_moment(recording: Recording, found: Difference, finding: Finding) -> Finding:
    """A note where the ranks hold the same again at the next optimizer step: they may have parted on purpose."""
    step = agree_again(recording, found) if finding.type in (REPLICA_DRIFT, PARTIAL_LOAD) else None
    if step is None:
        return finding
    everybody = phrases.ranks(sorted(found.samples), True)
    return replace(
        finding,
        severity="note",
        summary=f"{everybody} computed forward {found.turn} with different parameters: {', '.join(found.tensors[:3])}"
        f"{' ...' if len(found.tensors) > 3 else ''}. After optimizer step {step} they hold the same again.",
        remedy="If the ranks part on purpose and come back before each step, as for a sharpness-aware step, nothing is "
        f"wrong. Otherwise: {finding.remedy[0].lower()}{finding.remedy[1:]}",
    )


def _in_between(recording: Recording, model: Model, found: Difference) -> Finding:
    """DDP405: it began in steps that were not checked."""
    before, now = last_agreed(recording, found), max(s.step for s in found.samples.values())
    culprits = found.split.culprits
    when = f"since optimizer step {now} or earlier" if before is None else since_steps(before, now)
    since = f"{when}: {', '.join(found.tensors[:3])}{' ...' if len(found.tensors) > 3 else ''}."
    tensors = ", ".join(found.tensors[:6])
    looks = (
        [
            f"After optimizer step {now} these differ between ranks: {tensors}. No earlier check of all ranks is recorded."
        ]
        if before is None
        else [
            f"All ranks held the same values after optimizer step {before}, but not after step {now}: {tensors}.",
            "The steps in between were not checked.",
        ]
    )
    return finding_of(
        REPLICA_DRIFT,
        holding(culprits, found.samples, model.module, since),
        found.samples,
        culprits,
        [
            *looks,
            *how_far(found),
        ],
        "Look for code that changes parameters or optimizer state on these ranks only; world.compare() shows at any "
        "time whether they differ.",
        tensors=found.tensors,
        sides=found.sides,
    )


def _unlike_from_the_start(recording: Recording, model: Model, found: Difference) -> Finding:
    """DDP405: the wrapper did not make them equal."""
    told = "the wrapper's broadcast did not reach them"
    if model.options.get("init_sync") is False:
        told = "init_sync=False, so nothing was broadcast"
    finding = finding_of(
        REPLICA_DRIFT,
        f"The replicas of {model.module} differ when they are wrapped: {told}.",
        found.samples,
        found.split.culprits,
        how_far(found),
        "Let the wrapper broadcast (init_sync=True, the default), or start all ranks from the same values.",
        tensors=found.tensors,
        sides=found.sides,
    )
    models = models_of(recording)[found.model]
    return placed(finding, known((rank, m.site) for rank, m in sorted(models.items())))


def _gradients(recording: Recording, model: Model, found: Difference) -> Finding:
    """DDP409: synchronised gradients that differ when the optimizer takes them."""
    if not any(last_synchronised(recording, rank, s) for rank, s in found.samples.items()):
        return never_synchronised(recording, model, found)
    frozen = {tensor.name for tensor in model.parameters if not tensor.trains}
    absent = {
        rank for rank, s in found.samples.items() if any(s.digests[u].hash == 0 for u in found.units if u in s.digests)
    }
    if frozen.issuperset(found.tensors):
        return unfrozen(recording, model, found, absent)
    missing = absent if absent and len(absent) < len(found.samples) else set()
    editors = _editors(found)
    culprits = tuple(sorted(missing)) or editors or found.split.culprits
    evidence = [
        f"All ranks held the same parameters in the previous forward, and {model.wrapper} synchronised; but before "
        f"optimizer step {found.turn} the gradients of {', '.join(found.tensors[:6])} differ.",
        *how_far(found),
    ]
    if missing:
        evidence.append(f"{phrases.ranks(missing, True)} {phrases.verb(missing, 'has', 'have')} no gradient for them.")
    elif editors:
        others = phrases.ranks([rank for rank in found.samples if rank not in editors])
        evidence.append(
            f"After the synchronisation they were changed on {phrases.ranks(editors)}; {others} did not do that."
        )
    when = f"before optimizer step {found.turn}."
    if missing:
        return finding_of(
            SCALING_DIFFERS,
            f"{phrases.ranks(missing, True)} {phrases.verb(missing, 'lacks', 'lack')} gradients of {model.module} that the "
            f"other ranks have, {when}",
            found.samples,
            culprits,
            evidence,
            "Use every parameter in the loss on all ranks, and do not set gradients to None on some ranks only.",
            tensors=found.tensors,
        )
    recorded = editors or all(s.number("as_reduced") == 0.0 for s in found.samples.values())
    unsure = "" if recorded else ", or did not synchronise them"
    return finding_of(
        SCALING_DIFFERS,
        f"{phrases.ranks(culprits, True)} modified the gradients of {model.module} after synchronisation{unsure}, {when}"
        if culprits
        else f"{phrases.ranks(found.samples, True)} modified the gradients of {model.module} differently after "
        f"synchronisation{unsure}, {when}",
        found.samples,
        culprits,
        evidence,
        "Scale and clip gradients by the same numbers on all ranks, after synchronisation.",
        tensors=found.tensors,
        sides=() if culprits else found.sides,
    )


def _editors(found: Difference) -> tuple[int, ...]:
    """The ranks, if not all, on which gradients are no longer what the synchronisation made them.

    What torch did to them since, such as clipping, counts only if it was not done on all ranks.
    """
    for name in ("as_left", "as_reduced"):
        told = {rank: sample.number(name) for rank, sample in found.samples.items()}
        changed = tuple(rank for rank, same in sorted(told.items()) if same == 0.0)
        if set(told.values()) == {0.0, 1.0}:
            return changed
    return ()


def _left_alone(recording: Recording, number: int, model: Model, ignored: set[str]) -> Finding | None:
    """DDP405: parameters that the wrapper ignores, equal at first and then trained on each rank independently."""
    units = [unit for unit in units_of(recording, number) if tensor_name(unit) in ignored]
    turns = by_turn(recording, number, "forward")
    if not units or 1 not in turns or len(turns[1]) < 2 or differing(turns[1], units):
        return None
    found = first_difference(recording, number, kinds=("forward", "updated"), names=units)
    if found is None:
        return None
    ranks = tuple(sorted(found.samples))
    finding = finding_of(
        REPLICA_DRIFT,
        f"{', '.join(found.tensors[:3])} of {model.module} {phrases.verb(set(range(len(found.tensors))), 'is', 'are')} ignored by {model.wrapper} and "
        f"{phrases.verb(set(range(len(found.tensors))), 'differs', 'differ')} between ranks since forward {found.turn}.",
        found.samples,
        ranks,
        [
            "The ranks started with the same values, and each rank's optimizer trains them independently.",
            *how_far(found),
        ],
        "Do not exclude trained parameters from the wrapper, or synchronise their gradients yourself.",
        tensors=found.tensors,
    )
    told = {rank: recording.ranks[rank].events(ParametersIgnored) for rank in ranks}
    named = {rank: events[0].site for rank, events in told.items() if len(events) == 1}
    return placed(finding, known((rank, named.get(rank, site)) for rank, site in finding.where))


def _buffers(recording: Recording, number: int, model: Model) -> Finding | None:
    """DDP406: buffers differ in a forward, and nothing synchronises them."""
    names = [unit for unit in units_of(recording, number) if _is_buffer(model, unit)]
    if not names:
        return None
    told = [event for record in recording.ranks.values() for event in record.events(BuffersSynced)]
    broadcast = all(event.synced for event in told if event.model == number)
    turns = by_turn(recording, number, "forward")
    for turn, samples in turns.items():
        synced = [bool(sample.number("buffers_synced")) for sample in samples.values()]
        # After a forward under no_sync they are synchronised one forward later.
        if len(samples) < 2 or (broadcast and not all(synced)):
            continue
        units = differing(samples, names)
        if not units:
            continue
        statistics = all(unit.partition("[")[0].endswith(_STATISTICS) for unit in units)
        everybody = tuple(sorted(samples))
        held = {rank: values_of(sample, units) for rank, sample in samples.items()}
        apart = split(held)
        # The ranks that changed them just before this forward; else those that change them later.
        before = _changing(turns, units, samples, turn, turn)
        later = _changing(turns, units, samples, turn + 1, turn + _SOON)
        culprits = everybody if statistics else before.blamed(apart) or later.blamed(apart)
        moved: list[str] = []
        if culprits and apart.tied and not statistics:
            past, when = (before, "just before") if before.blamed(apart) else (later, "after")
            moved = [
                f"{phrases.ranks(culprits, True)} changed them {when} that forward; {phrases.ranks(past.unchanged)} did not."
            ]
        tensors = tuple(dict.fromkeys(unit.partition("[")[0] for unit in units))
        why = (
            f"{model.wrapper} is set not to synchronise buffers: every rank keeps statistics of its own batches."
            if not broadcast
            else f"{model.wrapper} broadcast them, but they still differ."
        )
        finding = finding_of(
            BUFFER_DRIFT,
            f"The buffers of {model.module} differ between ranks since forward {turn}: {', '.join(tensors[:3])}"
            f"{' ...' if len(tensors) > 3 else ''}.",
            samples,
            culprits,
            [why, *moved, *([f"{units[0]}: norm {extent(samples, units[0])}."] if extent(samples, units[0]) else [])],
            "Let the wrapper synchronise buffers (the default), or use SyncBatchNorm; otherwise evaluate and save from one rank only."
            if statistics
            else "Change buffers identically on all ranks, or broadcast them.",
            tensors=tensors,
            sides=() if culprits else apart.sides,
            certainty="proven" if statistics or not culprits or before.blamed(apart) else "likely",
        )
        if statistics:  # no single rank caused it: the line is where the model was wrapped
            places = tuple((rank, m.site) for rank, m in sorted(models_of(recording)[number].items()))
            finding = placed(finding, known(places))
        return finding
    return None


def _changing(
    turns: Mapping[int, Mapping[int, Sample]], units: tuple[str, ...], ranks: Iterable[int], first: int, last: int
) -> Past:
    """The ranks on which these parts changed from one forward to the next, in these forwards."""
    seen: dict[int, dict[int, bool]] = {rank: {} for rank in ranks}  # turn -> whether they changed since the one before
    for turn in range(first, last + 1):
        for rank, sample in turns.get(turn, {}).items():
            before = turns.get(turn - 1, {}).get(rank)
            if before is not None and rank in seen:
                seen[rank][turn] = values_of(before, units) != values_of(sample, units)
    most = max(map(len, seen.values()), default=0)  # a rank of which less was seen may have changed them as well
    known = tuple(rank for rank in sorted(seen) if seen[rank] and (len(seen[rank]) == most or any(seen[rank].values())))
    return Past(tuple(rank for rank in known if any(seen[rank].values())), known)
