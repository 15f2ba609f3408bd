"""Models of which a part is on another device."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.replicas import Model

WRONG_DEVICE = FindingType("DDP202", "wrong-device")


def find(models: Mapping[int, Model]) -> Finding | None:
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
        known((rank, models[rank].site) for rank in culprits),
        tuple(f"Rank {rank}: {', '.join(odd[rank][:8])}." for rank in culprits[:8]),
        "Move the whole model to the rank's device before it is wrapped: model.to(device) (to_empty(device=...) and "
        "re-initialise what was built on meta).",
        tensors=names[:20],
    )
