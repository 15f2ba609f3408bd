"""Ranks that train on the same data, or on data sets that do not match.

Only what is certain is reported. Evaluation data may be the same on all ranks, data may be sharded manually,
and ranks that are not replicas of each other may see any data: a finding needs a model that is wrapped on a group, and loops
over loaders in which an optimizer made steps; or digests of what the models were given.
"""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.recording.facts.loading import replica_groups
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.rules.data import inputs, replicated, samplers, splits
from ddpnb.rules.data.samplers import DATASET_DIFFERS, SAME_DATA
from ddpnb.rules.rule import Draft, family


@family(SAME_DATA, DATASET_DIFFERS)
def same_data(snap: Snapshot) -> Iterable[Draft]:
    """By what was declared, else by how the data were loaded, else by what the models were given."""
    found: list[Draft] = []
    for look in (replicated.of_layers, _of_loaders, inputs.of_models):
        known = {draft.kind for draft in found}
        found += [draft for draft in look(snap) if draft.kind not in known]
    return found


def _of_loaders(snap: Snapshot) -> Iterable[Draft]:
    """For each group of replicas the first that is certain."""
    looks = (samplers.of_samplers, splits.same_batches, splits.same_heads, splits.leaks, splits.parts_by_hand)
    for group in replica_groups(snap.recording):
        found = next((draft for look in looks if (draft := look(snap, group)) is not None), None)
        if found is not None:
            yield found
