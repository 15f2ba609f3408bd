"""Communication hooks that differ between ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddpnb.recording.events.models import CommHook
from ddpnb.recording.facts.digests import members
from ddpnb.recording.facts.going_on import going_on
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.recording import RankRecord
from ddpnb.recording.split import by_value
from ddpnb.rules.rule import Draft, differ, rule

_PERSONAL = re.compile(r"rank|device|seed|host|name|path|^id$", re.IGNORECASE)
_OF_TORCH = "torch.distributed.algorithms.ddp_comm_hooks."
_Hook = tuple[str, str, str]  # its name, the class of its state, its settings


@rule("DDP416", "hook-differs")
def comm_hooks(snap: Snapshot) -> Iterable[Draft]:
    """Communication hooks differ between ranks that reduce a model together."""
    if not any(record.events(CommHook) for record in snap.ranks.values()):
        return ()
    groups = by_value(
        (rank, group)
        for rank, record in snap.ranks.items()
        for group in {model.group for model in record.models if model.wrapper}
    )
    alone = [rank for rank, record in snap.ranks.items() if not any(model.wrapper for model in record.models)]
    for group, ranks in sorted(groups.items()):
        if len(ranks) < 2:
            continue
        both = snap.ranks.among((*ranks, *alone))  # a rank that wraps no model belongs to each group
        told = both.of(lambda record: _hooks(record) if _has_decided(snap, record) else None)
        models = [model for rank in ranks for model in snap.ranks[rank].models if model.group == group]
        found = list(
            differ(
                told,
                at=both.among(told).of(lambda record: (record.events(CommHook) or record.models)[-1].site),
                one="{who} [uses|use] a different communication hook than {others}.",
                tie="The ranks use different communication hooks: {sides}.",
                line="{}",
                shown=_in_words,
                absent=len(members(models) - told.keys()),
                remedy="Register the same communication hook, with the same settings, on all ranks.",
            )
        )
        if found:
            return found
    return ()


def _has_decided(snap: Snapshot, record: RankRecord) -> bool:
    """Whether all hooks of a rank are known: one may be registered until the first backward pass."""
    if not record.models or record.events_forgotten:
        return False
    if record.events(CommHook) or _ran_backward(record):
        return True
    return record.rank not in going_on(snap.recording)


def _ran_backward(record: RankRecord) -> bool:
    """Whether it has begun a backward pass through a wrapped model: its sample is taken at the end, its calls are made before."""
    wrapped = {model.number for model in record.models if model.wrapper}
    own = [sample for sample in record.samples if sample.model in wrapped]
    forwards = [sample.at_ns for sample in own if sample.kind == "forward"]
    return record.steps > 0 or any(
        (
            any(sample.kind in ("backward", "gradients") for sample in own),
            any(
                call.entered_ns > at and not call.op.startswith("broadcast")
                for at in forwards[:1]
                for call in record.calls
            ),
        )
    )


def _hooks(record: RankRecord) -> tuple[_Hook, ...]:
    return tuple((one.hook, one.state_class, _settings(one)) for one in record.events(CommHook))


def _in_words(hooks: tuple[_Hook, ...]) -> str:
    return ", ".join(f"{name.removeprefix(_OF_TORCH)} {settings}".strip() for name, _, settings in hooks) or "no hook"


def _settings(hook: CommHook) -> str:
    """The settings of a hook, without those that may differ between ranks."""
    settings = sorted(hook.settings.items())
    return ", ".join(f"{name}={value}" for name, value in settings if not _PERSONAL.search(name))[:400]
