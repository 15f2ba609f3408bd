"""Replicas without a wrapper: models that a script itself keeps equal, as far as one can know."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddpnb.analysis import phrases
from ddpnb.analysis.silent.drift import by_turn, comparable, differing, first_difference
from ddpnb.analysis.silent.optimizers import hyper_differ
from ddpnb.analysis.silent.telling import finding_of, how_far
from ddpnb.analysis.source import suspects
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.model.replicas import Model


def together(recording: Recording, number: int, models: Mapping[int, Model]) -> bool:
    """Whether these models are replicas of each other, and not merely alike: wrapped, or kept equal by hand."""
    model = models[min(models)]
    return comparable(models) and bool(model.wrapper or _kept_equal(recording, number, model) is not None)


def by_hand(recording: Recording, number: int, model: Model) -> Finding | None:
    """A model without a wrapper, if the ranks' are replicas."""
    agreed = _kept_equal(recording, number, model)
    if agreed is None:
        return None
    sharded = bool(model.options.get("sharded"))
    hyper = hyper_differ(recording, number, model)
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
    return finding_of(
        recording,
        "DDP405",
        f"{phrases.ranks(found.odd, True)} {phrases.verb(found.odd, 'holds', 'hold')} other parameters than the others since optimizer "
        f"step {found.turn}: {', '.join(found.tensors[:3])}.",
        found.samples,
        found.odd,
        [evidence, *how_far(found)],
        "Let all ranks start from the same values (broadcast into the parameters themselves) and average the gradients of "
        "all parameters before every step, or let DistributedDataParallel do it.",
        suspects.PARAMETERS,
        tensors=found.tensors,
        wanted=None if agreed or sharded else re.compile(r"broadcast"),
    )


def _kept_equal(recording: Recording, number: int, model: Model) -> list[str] | None:
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


def _inputs_never_differ(recording: Recording) -> bool:
    """Whether all ranks had the same losses: equal gradients then prove nothing."""
    losses = [tuple(s.number("loss") for s in r.samples if s.kind == "backward") for r in recording.ranks.values()]
    return len(set(losses)) < 2
