"""Findings that block no rank. A rule is a function of a Recording that gives a Finding, a list of them or None; here is their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ddpnb.facts.snapshot import Snapshot
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.rules import engine, exit_status, unwaited_work
from ddpnb.rules.checkpoints import nothing_loaded, resuming
from ddpnb.rules.data import batches, replicated
from ddpnb.rules.data.batches import uneven_shards
from ddpnb.rules.divergence import call_swaps, ddp_setup, not_synchronised, numbers, replicas
from ddpnb.rules.environment import backends, own_ranks, shared_memory, threads, variables
from ddpnb.rules.rule import Draft, Refined, family


@dataclass(frozen=True, slots=True)
class Row:
    """A rule that is not yet declared with ``@rule``, and when it is asked.

    ``alone``: only where nothing has failed or is blocked. ``effect``: what it finds follows from errors of the
    rules before it, so it is not asked after one.
    """

    find: Callable[[Recording], Sequence[Finding] | Finding | None]
    alone: bool = False
    effect: bool = False


def _rules() -> tuple[Row, ...]:
    """All rules, causes before their effects."""
    return (
        Row(replicated.find),
        Row(call_swaps.find, effect=True),
        Row(stale_parameters.find),
        Row(replicas.find, effect=True),
        Row(not_synchronised.find, alone=True, effect=True),
    )


def environment(recording: Recording, stuck: frozenset[int] = frozenset()) -> list[Finding]:
    """The findings about the environment; warnings and notes unless the ranks contradict each other."""
    found = (
        backends.find(recording),
        threads.find(recording),
        shared_memory.find(recording),
    )
    snap = Snapshot(recording)
    vars(snap)["stuck"] = stuck
    asked = engine.ask(snap, engine.of_package("environment"))
    return [*(finding for finding in found if finding is not None), *asked, *variables.find(recording)]


def _environment(recording: Recording, stuck: frozenset[int]) -> list[Finding]:
    declared = {code for rule in engine.of_package("environment") for code in rule.codes}
    return [finding for finding in environment(recording, stuck) if finding.code not in declared]


@family()
def rows(snap: Snapshot) -> Iterable[Draft]:
    """What these rules find."""
    if snap.found("DDP308") and (uneven := uneven_shards(snap.recording, stopped=True)) is not None:
        yield Refined("", by=uneven)
    found = list[Finding]()
    for row in _rules(snap.stuck):
        errors = any(one.severity == "error" for one in (*found, *snap.findings[len(snap.failures) :]))
        if (row.alone and snap.failures) or (row.effect and errors):
            continue
        known = {finding.type for finding in found}  # an earlier rule shows the cause, a later one only the effect
        gives = row.find(snap.recording) or ()
        gives = (gives,) if isinstance(gives, Finding) else gives
        found += [finding for finding in gives if finding.type not in known]
    yield from (Refined("", by=finding) for finding in found)
