"""Silent divergence: the first thing that went wrong with the replicas of each model.

Every cause is found by elimination. Gradients differ although parameters agreed: they were not synchronised, or changed
afterwards. Parameters differ after a step although gradients agreed: the optimizers differ. Parameters differ at a
forward although they agreed after the step before: the script changed them in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ddpnb.recording.events.data import JoinEntered
from ddpnb.recording.events.models import CommHook
from ddpnb.recording.facts.replicas import Replicas, replicas_of
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.recording import RankRecord
from ddpnb.rules.divergence.buffers import BUFFER_DRIFT, buffers_differ, ignored_differ
from ddpnb.rules.divergence.gradients import GRAPH_CHANGED, gradients_differ
from ddpnb.rules.divergence.joined import after_join
from ddpnb.rules.divergence.manual_replicas import by_hand
from ddpnb.rules.divergence.optimizers import (
    OPTIMIZER_DIFFERS,
    SCALING_DIFFERS,
    STATE_ON_ONE_RANK,
    other_update,
    passes_differ,
    scales_differ,
    settings_differ,
)
from ddpnb.rules.divergence.parameter_edit import (
    MIXED,
    PARTIAL_LOAD,
    REPLICA_DRIFT,
    SETUP,
    edited,
    in_between,
    since_earlier_run,
    unlike_from_the_start,
)
from ddpnb.rules.divergence.synchronisation import FORWARD_BYPASSED, SYNC_SKIPPED, bypassed, sync_differs
from ddpnb.rules.rule import Draft, family
from ddpnb.rules.unwaited_work import WORK_NOT_WAITED

_KINDS = (
    REPLICA_DRIFT,
    BUFFER_DRIFT,
    FORWARD_BYPASSED,
    SYNC_SKIPPED,
    SCALING_DIFFERS,
    OPTIMIZER_DIFFERS,
    GRAPH_CHANGED,
    PARTIAL_LOAD,
    STATE_ON_ONE_RANK,
    WORK_NOT_WAITED,
)  # fmt: skip


def _drifted(own: Replicas) -> Draft | None:
    """What the first difference of parameters or gradients shows."""
    found = own.drift
    if found is None:
        return None
    if found.kind == "forward":
        return edited(own, found)
    if (left_out := passes_differ(own, found)) is not None:
        return left_out
    if found.kind == "gradients":
        return gradients_differ(own, found)
    if found.turn == 1 and "made" in own.model.options:  # a model of an earlier run
        return since_earlier_run(own, found) or in_between(own, found)
    if found.turn == 1:
        return unlike_from_the_start(own, found)
    steps = {rank: sample.step - 1 for rank, sample in found.samples.items()}
    looked = {rank for rank, step in steps.items() if any(one.step == step for one in own.of(rank, "gradients"))}
    if any(looked.isdisjoint(side) for side in found.sides):  # that the gradients agreed is not known
        return in_between(own, found)
    return other_update(own, found)


#: What may have gone wrong with a wrapped model: the first that is found is the cause of those after it.
CAUSES: tuple[Callable[[Replicas], Draft | None], ...] = (
    bypassed,
    sync_differs,
    settings_differ,
    scales_differ,
    _drifted,
    buffers_differ,
    ignored_differ,
)


@family(*_KINDS, after=(*MIXED, *SETUP, REPLICA_DRIFT.code, OPTIMIZER_DIFFERS.code))
def replicas(snap: Snapshot) -> Iterable[Draft]:
    """The first thing that went wrong with the replicas of each model."""
    if any(map(_diverge_by_design, snap.ranks.values())):
        yield from after_join(snap)
        return
    for own in replicas_of(snap.recording):
        yield from _of(own)


def _of(own: Replicas) -> Iterator[Draft]:
    if not own.model.wrapper:
        causes: tuple[Callable[[Replicas], Draft | None], ...] = (by_hand,)
    elif own.drift is not None and own.averaged_by_itself(own.drift):
        return
    else:
        causes = CAUSES
    first = next((draft for cause in causes if (draft := cause(own)) is not None), None)
    if first is None:
        return
    # What is not synchronised so far may be made equal by the script, later.
    yield replace(first, certainty="likely") if own.model.wrapper and own.may_be_averaged() else first


def _diverge_by_design(record: RankRecord) -> bool:
    """Whether replicas diverge by design: ranks that have joined fall behind until the last gives its model to all,
    and local SGD averages the parameters every now and then.
    """
    hooks = record.events(CommHook)
    return bool(record.events(JoinEntered)) or any(hook.hook.endswith(".post_localSGD_hook") for hook in hooks)
