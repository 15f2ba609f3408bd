"""Where the hosts of ranks are whose devices wait in a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.calls import CallState, Site
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.findings import Finding

_SHOWN = 4  # places


def with_hosts(standings: Mapping[int, Standing], finding: Finding) -> Finding:
    """The finding, with the places where the hosts of its waiting ranks are: behind the calls that their devices wait in."""
    there: dict[tuple[int, Site], list[int]] = {}
    for rank in sorted(finding.waiting):
        standing = standings.get(rank)
        call = standing.call if standing is not None else None
        if standing is None or call is None or not call.signature.asynchronous or call.state is not CallState.ISSUED:
            continue
        stack = standing.record.main_stack
        frame = stack.innermost_user if stack is not None else None
        if frame is not None and frame.site != call.site:
            later = sum(other.number > call.number for other in standing.record.in_flight)
            there.setdefault((later, frame.site), []).append(rank)
    lines = tuple(
        f"The host of {phrases.ranks(ranks)} is further: it waits{phrases.at(site)}"
        + (f", after {later} more call{'s' * (later != 1)}." if later else ".")
        for (later, site), ranks in sorted(there.items(), key=lambda entry: entry[1])[:_SHOWN]
    )
    return replace(finding, evidence=(*finding.evidence, *lines)) if lines else finding
