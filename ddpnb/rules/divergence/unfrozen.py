"""DDP415: parameters that did not require gradients when the model was wrapped, and do later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpnb.facts.digests import Difference
from ddpnb.model import phrases
from ddpnb.model.calls import Site
from ddpnb.model.events.models import ModelWrapped
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.model.replicas import Model
from ddpnb.rules.divergence.builder import finding_of, how_far, placed
from ddpnb.source.gradients import requiring

GRAPH_CHANGED = FindingType("DDP415", "graph-changed")


def unfrozen(recording: Recording, model: Model, found: Difference, absent: set[int]) -> Finding:
    """Parameters that were frozen when the model was wrapped have gradients of each rank's own.

    Args:
        recording: what is known.
        model: the one that they are parameters of.
        found: where their gradients differ.
        absent: the ranks on which they have none.
    """
    culprits = tuple(rank for rank in sorted(found.samples) if rank not in absent)
    lines = {rank: _set_since(recording.ranks[rank], recording.sources, found.samples[rank].at_ns) for rank in culprits}
    by_line: dict[Site, list[int]] = {}
    for rank, site in lines.items():
        if site is not None:
            by_line.setdefault(site, []).append(rank)
    finding = finding_of(
        GRAPH_CHANGED,
        f"{', '.join(found.tensors[:3])} of {model.module} did not require gradients when it was wrapped and do now"
        f"{f' on {phrases.ranks(culprits)}' if absent else ''}: {model.wrapper} does not synchronise them.",
        found.samples,
        culprits,
        [
            f"Their gradients differ before optimizer step {found.turn}; all other gradients agree.",
            *how_far(found),
            *(f"After it was wrapped, {phrases.ranks(those)} ran {site}." for site, those in by_line.items()),
        ],
        "Set requires_grad before wrapping, and wrap the model again (DistributedDataParallel(module, ...)) when it "
        "changes; or train all parameters and give the frozen ones a learning rate of 0.",
        tensors=found.tensors,
    )
    places = tuple((rank, site) for site, those in by_line.items() for rank in those)
    return placed(finding, (*places, *finding.where))


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
