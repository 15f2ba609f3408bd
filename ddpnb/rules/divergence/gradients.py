"""Synchronised gradients that differ when the optimizer takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpnb.recording import phrases
from ddpnb.recording.calls import Site
from ddpnb.recording.events.models import ModelWrapped
from ddpnb.recording.facts.digests import Difference
from ddpnb.recording.facts.replicas import Replicas
from ddpnb.recording.findings import FindingType
from ddpnb.recording.recording import RankRecord
from ddpnb.recording.replicas import Sample
from ddpnb.recording.source.statements import requiring
from ddpnb.rules.divergence.builder import draft_of, either, few, how_far
from ddpnb.rules.divergence.optimizers import SCALING_DIFFERS
from ddpnb.rules.divergence.synchronisation import never_synchronised
from ddpnb.rules.rule import Draft, each, say, title

GRAPH_CHANGED = FindingType("DDP415", "graph-changed")


def gradients_differ(own: Replicas, found: Difference) -> Draft:
    """DDP409, or why they were not synchronised: DDP408, DDP415."""
    samples = found.samples
    if not any(own.last_synchronised(rank, sample) for rank, sample in samples.items()):
        return never_synchronised(own, found)
    absent = {rank for rank, s in samples.items() if any(s.digests[u].hash == 0 for u in found.units if u in s.digests)}
    if {tensor.name for tensor in own.model.parameters if not tensor.trains}.issuperset(found.tensors):
        return _unfrozen(own, found, absent)
    told = (
        f"All ranks held the same parameters in the previous forward, and {own.model.wrapper} synchronised; but before "
        f"optimizer step {found.turn} the gradients of {', '.join(found.tensors[:6])} differ.",
        *how_far(found),
    )
    words = {"name": own.name, "when": f"before optimizer step {found.turn}."}
    if absent and len(absent) < len(samples):
        return draft_of(
            SCALING_DIFFERS,
            say("{who} [lacks|lack] gradients of {name} that the other ranks have, {when}", absent, **words),
            samples,
            tuple(sorted(absent)),
            [*told, say("{who} [has|have] no gradient for them.", absent)],
            "Use every parameter in the loss on all ranks, and do not set gradients to None on some ranks only.",
            tensors=found.tensors,
        )
    editors = _editors(found)
    culprits = editors or found.split.culprits
    others = phrases.ranks(phrases.besides(samples, editors))
    changed = f"After the synchronisation they were changed on {phrases.ranks(editors)}; {others} did not do that."
    recorded = editors or all(s.as_reduced == 0.0 for s in samples.values())
    clips = _limits(own, samples)
    return draft_of(
        SCALING_DIFFERS,
        either(
            *(
                (
                    "{who} modified the gradients of {name} after synchronisation, {when}",
                    "{who} modified the gradients of {name} differently after synchronisation, {when}",
                )
                if recorded
                else (
                    "{who} [holds|hold] other gradients of {name} than the other ranks {when}",
                    "{who} hold different gradients of {name} {when}",
                )
            ),
            culprits,
            samples,
            **words,
        ),
        samples,
        culprits,
        [
            *told,
            *([] if recorded else ["They were modified after synchronisation, or were not synchronised."]),
            *([changed] if editors else []),
            *each(
                clips,
                lambda rank: (
                    f"Rank {rank} clips to a norm of {clips[rank].max_norm:.6g}{phrases.at(clips[rank].site)}."
                ),
            ),
        ],
        "Scale and clip gradients by the same numbers on all ranks, after synchronisation.",
        tensors=found.tensors,
        sides=() if culprits else found.sides,
        first=tuple((rank, clip.site) for rank, clip in clips.items()),
    )


def _limits(own: Replicas, samples: Mapping[int, Sample]) -> dict[int, Sample]:
    """What ``clip_grad_norm_`` was given in this step, if it was not the same on all ranks."""
    clips = own.of_step("clip", samples)
    given = {rank: clip.max_norm for rank, clip in sorted(clips.items())}
    return {} if None in given.values() or len(set(given.values())) < 2 else dict(sorted(clips.items()))


def _editors(found: Difference) -> tuple[int, ...]:
    """The ranks, if not all, on which gradients are no longer what the synchronisation made them.

    What torch did to them since, such as clipping, counts only if it was not done on all ranks.
    """
    for name in ("as_left", "as_reduced"):
        told = {rank: getattr(sample, name) for rank, sample in sorted(found.samples.items())}
        if set(told.values()) == {0.0, 1.0}:
            return tuple(rank for rank, same in told.items() if same == 0.0)
    return ()


def _unfrozen(own: Replicas, found: Difference, absent: set[int]) -> Draft:
    """DDP415: parameters that were frozen when the model was wrapped have gradients of each rank's own; ``absent``: on these none."""
    culprits = phrases.besides(sorted(found.samples), absent)
    lines = {
        rank: site
        for rank in culprits
        if (site := _set_since(own.ranks[rank], own.recording.sources, found.samples[rank].at_ns)) is not None
    }
    one = len(found.tensors) == 1
    requires = f"{'requires' if one else 'require'} gradients only since {'it was' if one else 'they were'} wrapped"
    on = f" on {phrases.ranks(culprits)}" if absent else ""
    does_not = f"{'DDP' if own.model.wrapper == 'DistributedDataParallel' else own.model.wrapper} does not synchronise {'it' if one else 'them'}."
    return draft_of(
        GRAPH_CHANGED,
        title(
            f"{few(found.tensors)} of {own.name} {requires}{on}; {does_not}",
            f"{few(found.tensors)} {requires}{on}; {does_not}",
            f"{len(found.tensors)} parameters of {own.name} {requires}{on}; {does_not}",
        ),
        found.samples,
        culprits,
        [
            f"{'Its' if one else 'Their'} gradients differ before optimizer step {found.turn}; all other gradients agree.",
            *how_far(found),
            *(
                f"After it was wrapped, {phrases.ranks(those)} ran {site}."
                for those, site in phrases.by_place(lines.items())
            ),
        ],
        "Set requires_grad before wrapping, and wrap the model again (DistributedDataParallel(module, ...)) when it "
        "changes; or train all parameters and give the frozen ones a learning rate of 0.",
        tensors=found.tensors,
        at=lines,
        also=tuple((rank, found.samples[rank].site) for rank in (*culprits, *sorted(absent))),
    )


def _set_since(record: RankRecord, sources: Mapping[str, str], until_ns: int) -> Site | None:
    """The last line that sets ``requires_grad`` of those that the rank ran since it wrapped a model, up to a time."""
    wrapped = [event for event in record.events(ModelWrapped) if event.began_ns <= until_ns]
    if record.executed is None or not wrapped:
        return None
    ran: list[Site] = []
    for window in record.executed.during(wrapped[-1].began_ns, until_ns):
        lines = record.executed.of(window)
        # The model was wrapped within the first window: what ran before that, ran before that line.
        ran += lines if window.began_ns > wrapped[-1].began_ns else _after(lines, wrapped[-1].site)
    return next((at for at in reversed(ran) if at.line in requiring(sources.get(at.file, ""))), None)


def _after(lines: Sequence[Site], site: Site) -> Sequence[Site]:
    places = [(line.file, line.line) for line in lines]
    return lines[places.index((site.file, site.line)) + 1 :] if (site.file, site.line) in places else ()
