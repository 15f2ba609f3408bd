"""Loaders that deliver different numbers of batches to the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.facts.loading import Loop
from ddpnb.recording.facts.places import moments
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.uneven_loaders import uneven_loops
from ddpnb.recording.recording import Recording
from ddpnb.rules.data.even_batches import measures
from ddpnb.rules.rule import Draft, each, rule, say


@rule("DDP504", "uneven-shards", severity="warning")
def batches(snap: Snapshot) -> Iterable[Draft]:
    """Different numbers of batches, known before they hurt, or as the cause of a loop that ends on some ranks alone."""
    whole = len(snap.ranks) == snap.recording.world_size
    over = whole and all(record.ending is not None and record.ending.well for record in snap.ranks.values())
    stopped = bool(snap.found("DDP308"))
    found = None if over else uneven_loops(snap.recording, stopped=stopped)
    if found is not None:
        # That it hurts is known where a loop did: ranks may also agree to stop together.
        yield replace(_uneven(snap.recording, *found), certainty="proven" if stopped else "likely")


def _uneven(
    recording: Recording, loops: Mapping[int, Loop], counts: Mapping[int, int], culprits: Sequence[int]
) -> Draft:
    rest = phrases.besides(sorted(loops), culprits)
    more = max((counts[rank] for rank in rest if rank in counts), default=None)
    return Draft(
        say(
            "{who} [has|have] {least} batches{at}, ",
            culprits,
            least=counts[culprits[0]],
            at=phrases.at(loops[culprits[0]].site),
        )
        + f"{phrases.ranks(rest)} {phrases.verb(rest, 'has', 'have')} {'more' if more is None else more}.",
        culprits,
        f"Give all ranks the same number of batches: {measures(recording, loops, loops[culprits[0]].site)}.",
        loops,
        evidence=each(
            sorted(loops),
            lambda rank: (
                f"Rank {rank}: {counts[rank]} batches{_made_of(loops[rank])}."
                if rank in counts
                else f"Rank {rank}: still in this loop after {loops[rank].steps} steps."
            ),
        ),
        moments=moments(loops) if len(counts) == len(loops) else (),
    )


def _made_of(loop: Loop) -> str:
    loader, passed = loop.loader, loop.passed
    if not loader.batch_size:
        return ""
    samples = f" out of {passed.num_samples} samples" if passed is not None and passed.num_samples else ""
    return f" of {loader.batch_size}{samples}{', an incomplete last batch dropped' * loader.drop_last}"
