"""Training after Join: the optimizers of ranks that had fewer batches made fewer steps, and their states differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ddpnb.recording.events.data import JoinEntered
from ddpnb.recording.events.models import OptimizerMade
from ddpnb.recording.facts.digests import differing, extent
from ddpnb.recording.facts.replicas import Replicas, replicas_of
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.recording import RankRecord
from ddpnb.recording.replicas import Sample
from ddpnb.recording.samples import tensor_name
from ddpnb.rules.divergence.optimizers import OPTIMIZER_DIFFERS
from ddpnb.rules.rule import Draft, each, of_samples


def after_join(snap: Snapshot) -> Iterable[Draft]:
    """Replicas that were equal after Join, and no longer after the next step of their optimizers."""
    joins = snap.ranks.of(_joins)
    if len(joins) < len(snap.ranks) or len({len(began) for began in joins.values()}) > 1:
        return
    for own in replicas_of(snap.recording):
        if own.model.wrapper and (draft := _first_difference(snap, own, joins.among(own.ranks))) is not None:
            yield draft
            return


def _joins(record: RankRecord) -> tuple[int, ...] | None:
    entered = [join for join in record.events(JoinEntered) if join.enable]
    return None if record.events_forgotten else tuple(join.began_ns for join in entered) or None


def _first_difference(snap: Snapshot, own: Replicas, joins: Mapping[int, tuple[int, ...]]) -> Draft | None:
    for number in range(1, min(map(len, joins.values()))):  # before the first, all have made the same steps
        forwards = {rank: next(_since(own, rank, joins[rank], number, "forward"), None) for rank in joins}
        before = {rank: sample for rank, sample in forwards.items() if sample is not None}
        if len(before) < len(joins) or len({sample.step for sample in before.values()}) < 2 or differing(before):
            continue
        after = {
            rank: sample
            for rank, began in joins.items()
            for sample in _since(own, rank, began, number, "updated")
            if sample.step == before[rank].step + 1
        }
        known = [unit for unit in differing(after) if all(unit in sample.digests for sample in before.values())]
        if known and len(after) == len(joins):
            return _draft(snap, before, after, known)
    return None


def _since(own: Replicas, rank: int, began: tuple[int, ...], number: int, kind: str) -> Iterator[Sample]:
    """The samples of a rank under its Join with this number, from 0, and before the next."""
    end = began[number + 1] if number + 1 < len(began) else None
    return (one for one in own.of(rank, kind) if one.at_ns >= began[number] and (end is None or one.at_ns < end))


def _draft(snap: Snapshot, before: Mapping[int, Sample], after: Mapping[int, Sample], units: list[str]) -> Draft:
    made = snap.last(OptimizerMade).of(lambda event: event.class_name)
    norms = next((f"{unit}: norm {told}." for unit in units if (told := extent(after, unit))), None)
    return of_samples(
        after,
        "Join made the replicas equal, and the next optimizer step differs: the optimizers have taken different numbers of steps.",
        tuple(sorted(after)),
        "Give all ranks the same number of batches instead of Join. Or make the states equal after each Join: broadcast the "
        "tensors in optimizer.state from the rank that had the most batches. SGD without momentum has no state.",
        evidence=(
            *each(
                sorted(after),
                lambda rank: f"Rank {rank}: {before[rank].step} steps of {made.get(rank, 'its optimizer')} before.",
            ),
            "Their states or settings follow from these steps, and Join does not make them equal.",
            "At the first forward under the next Join all ranks held the same values.",
            *([norms] if norms is not None else []),
        ),
        kind=OPTIMIZER_DIFFERS,
        tensors=tuple(dict.fromkeys(map(tensor_name, units)))[:20],
    )
