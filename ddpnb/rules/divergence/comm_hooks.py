"""Communication hooks that differ between ranks."""

from __future__ import annotations

import re

from ddpnb.facts.digests import split
from ddpnb.facts.once import once
from ddpnb.facts.places import known
from ddpnb.model import phrases
from ddpnb.model.events.models import CommHook
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import Recording

HOOK_DIFFERS = FindingType("DDP416", "hook-differs")


@once
def find(recording: Recording) -> Finding | None:
    """DDP416: communication hooks differ between ranks that reduce a model together."""
    groups = {m.group for record in recording.ranks.values() for m in record.models if m.wrapper}
    return next((found for group in sorted(groups) if (found := _among(recording, group))), None)


def _among(recording: Recording, group: str) -> Finding | None:
    """The same among the ranks of this group; one that wraps no model belongs to each."""
    members = {
        rank: record
        for rank, record in recording.ranks.items()
        if group in {m.group for m in record.models if m.wrapper} or not any(m.wrapper for m in record.models)
    }
    if sum(any(m.wrapper for m in record.models) for record in members.values()) < 2:
        return None
    hooks = {rank: record.events(CommHook) for rank, record in members.items()}
    told = {
        rank: tuple((hook.hook, hook.state_class, _settings(hook)) for hook in registered)
        for rank, registered in hooks.items()
        if recording.ranks[rank].models and not recording.ranks[rank].events_forgotten
    }
    apart = split(told)
    if not apart.differs:
        return None
    sites = {rank: hooks[rank][-1].site if hooks[rank] else recording.ranks[rank].models[0].site for rank in told}
    culprits = apart.culprits
    others = phrases.besides(sorted(told), culprits)
    sides = () if culprits else apart.sides
    return Finding(
        HOOK_DIFFERS,
        f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'uses', 'use')} a different communication hook than {phrases.ranks(others)}."
        if culprits
        else f"{phrases.ranks(told, True)} use different communication hooks.",
        culprits,
        others if culprits else (),
        None,
        known((rank, sites[rank]) for rank in (*culprits, *others)),
        tuple(
            f"Rank {rank}: {', '.join(f'{name} {settings}'.strip() for name, _, settings in told[rank]) or 'no hook'}."
            for rank in sorted(told)[:8]
        )
        + tuple(phrases.undecided(sides)),
        "Register the same communication hook, with the same settings, on all ranks.",
        sides=sides,
    )


_PERSONAL = re.compile(r"rank|device|seed|host|name|path|^id$", re.IGNORECASE)


def _settings(hook: CommHook) -> str:
    """The settings of a hook, without those that may differ between ranks."""
    settings = sorted(hook.settings.items())
    return ", ".join(f"{name}={value}" for name, value in settings if not _PERSONAL.search(name))[:400]
