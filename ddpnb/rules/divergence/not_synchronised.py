"""DDP417: models that no wrapper holds, and that no collective synchronises."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ddpnb.facts.digests import by_turn, comparable, differing, first_difference, models_of
from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.calls import Call
from ddpnb.model.events.models import OptimizerSeen
from ddpnb.model.events.startup import InitProcessGroup
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.model.replicas import Model
from ddpnb.rules.divergence.manual_replicas import together
from ddpnb.rules.divergence.settings import hyper_differ

NOT_SYNCHRONISED = FindingType("DDP417", "not-synchronised", severity="warning")

_STEPS = 2  # optimizer steps from which on it is training
_METRIC = 256  # elements: calls on so few, compared with the model, carry a loss or a count
_SHARE = 4
_FEW = 16  # elements of a vector, such as a bias, that a metric may have too


def find(recording: Recording) -> Finding | None:
    """A warning where each rank trains a model of its own, alike in shape and settings, and nothing was synchronised."""
    models = _trained_alone(recording)
    if not models:
        return None
    number = next(iter(models.values())).number
    found = first_difference(recording, number, kinds=("updated",))
    common = [samples for samples in by_turn(recording, number, "updated").values() if samples.keys() == models.keys()]
    if found is None or not common or not differing(common[-1]):
        return None  # equal, or equal again
    model = models[min(models)]
    if together(recording, number, models) or hyper_differ(recording, number, model) is not None:
        return None
    since = {rank: _since_first_step(record, number) for rank, record in recording.ranks.items()}
    if any(_carries(call, model) for calls in since.values() for call in calls):
        return None
    ranks = tuple(sorted(models))
    steps = sorted({recording.ranks[rank].steps for rank in ranks})
    many = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
    return Finding(
        NOT_SYNCHRONISED,
        f"Each rank trains its own model: no collective carried gradients or parameters in {many} optimizer steps of "
        f"{model.module}, and the parameters differ between ranks.",
        ranks,
        where=known((rank, sample.site) for rank, sample in sorted(common[-1].items())),
        evidence=(
            *(
                f"Rank {rank}: {recording.ranks[rank].steps} optimizer steps, {_counted(since[rank])} since the first."
                for rank in ranks[:8]
            ),
            f"After optimizer step {found.turn} the ranks held different values: {', '.join(found.tensors[:3])}"
            f"{' ...' if len(found.tensors) > 3 else ''}.",
            "No rank wrapped a model with DistributedDataParallel or FSDP.",
        ),
        remedy="Wrap the model: DistributedDataParallel(model), fabric.setup(model, optimizer) with Lightning Fabric, or "
        "accelerator.prepare(model, optimizer). If the ranks are meant to train independently, nothing is wrong.",
        tensors=found.tensors[:20],
        certainty="likely",
    )


def _trained_alone(recording: Recording) -> Mapping[int, Model]:
    """The model of each rank, if none is wrapped or sharded, all are alike, and all ranks trained in one group."""
    records = recording.ranks
    if len(records) < 2 or len(records) != recording.world_size:
        return {}
    for record in records.values():
        joined = record.events(InitProcessGroup, state="done")
        if not joined or (joined[-1].size or joined[-1].world_size) != recording.world_size or record.steps < _STEPS:
            return {}
        if record.forgotten or record.detached or any(m.wrapper or m.options.get("sharded") for m in record.models):
            return {}
    first = next(iter(models_of(recording).values()), {})
    return first if first.keys() == records.keys() and comparable(first) else {}


def _since_first_step(record: RankRecord, number: int) -> list[Call]:
    """The calls of a rank since its first optimizer step; all of them where that is not known."""
    seen = [event.began_ns for event in record.events(OptimizerSeen) if event.model == number]
    begin = min(seen, default=0)
    return [call for call in record.calls if call.entered_ns > begin]


def _carries(call: Call, model: Model) -> bool:
    """Whether a call may carry gradients, parameters or activations: not a loss, a count or an object."""
    shapes = [tensor.shape for tensor in model.parameters]
    whole = sum(map(math.prod, shapes))
    single = {math.prod(shape) for shape in shapes if len(shape) > 1 or math.prod(shape) > _FEW}
    if call.is_p2p or call.op.startswith("all_to_all"):
        return True
    floats = any(dtype.startswith(("float", "bfloat", "complex")) for dtype in call.signature.dtypes)
    count = sum(call.signature.elements)
    return floats and (count >= min(_METRIC, whole / _SHARE) or not single.isdisjoint(call.signature.elements))


def _counted(calls: list[Call]) -> str:
    return f"{len(calls) or 'no'} collective{'s' * (len(calls) != 1)}" + (
        f" (the last: {phrases.in_call(calls[-1])})" if calls else ""
    )
