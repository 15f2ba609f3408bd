"""Models of which a part is on another device."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.recording.facts.digests import models_of
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.recording.replicas import Model, TensorSpec
from ddpnb.rules.rule import FEW, Draft, rule, say


@rule("DDP202", "wrong-device")
def devices(snap: Snapshot) -> Iterable[Draft]:
    """Parameters or buffers of one model on several devices, or on none."""
    for number in models_of(snap.recording).values():
        models = PerRank(number).of(lambda model: model if model.wrapper else None)
        odd = models.of(lambda model: _elsewhere(model) or None)
        if odd:
            first = next(iter(odd))
            names = tuple(tensor.name for tensor in odd[first])
            yield Draft(
                say(
                    "On {odd} a part of {module} is on {held}: {names}.",
                    odd=tuple(odd),
                    module=models[first].module,
                    held=", ".join(sorted({tensor.device for tensor in odd[first]})),
                    names=f"{', '.join(names[:4])}{' ...' * (len(names) > 4)}",
                ),
                tuple(odd),
                "Move the whole model to the rank's device before it is wrapped: model.to(device) (to_empty(device=...) and "
                "re-initialise what was built on meta).",
                models.among(odd),
                evidence=[f"Rank {rank}: {', '.join(one.name for one in odd[rank][:8])}." for rank in list(odd)[:FEW]],
                tensors=names[:20],
            )


def _elsewhere(model: Model) -> tuple[TensorSpec, ...]:
    """The tensors that are not where most of the model is."""
    places = {tensor.device for tensor in model.tensors}
    if places == {"meta"}:
        return model.tensors
    if len(places) < 2 or model.options.get("device_ids") or places.isdisjoint(("meta", "cpu")):
        return ()
    usual = max(places, key=lambda device: (device != "meta", sum(t.device == device for t in model.tensors)))
    return tuple(tensor for tensor in model.tensors if tensor.device != usual)
