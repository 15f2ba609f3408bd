"""Findings that block no rank. A rule is a function of a Recording that gives a Finding, a list of them or None; here is their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ddpnb.facts.snapshot import Snapshot
from ddpnb.model.findings import Finding
from ddpnb.model.recording import Recording
from ddpnb.rules import engine, exit_status, unwaited_work
from ddpnb.rules.checkpoints import nothing_loaded, resuming
from ddpnb.rules.data import batches, replicated
from ddpnb.rules.divergence import call_swaps, ddp_setup, not_synchronised, numbers, replicas
from ddpnb.rules.environment import backends, own_ranks, shared_memory, threads, timeouts, variables
from ddpnb.rules.hangs import forward_on_one_rank

_ORDER = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, slots=True)
class Row:
    """A rule that is not yet declared with ``@rule``, and when it is asked.

    ``alone``: only where nothing has failed or is blocked. ``effect``: what it finds follows from errors of the
    rules before it, so it is not asked after one.
    """

    find: Callable[[Recording], Sequence[Finding] | Finding | None]
    alone: bool = False
    effect: bool = False


def _rules(stuck: frozenset[int]) -> tuple[Row, ...]:
    """All rules, causes before their effects."""
    return (
        Row(forward_on_one_rank.find, alone=True),
        Row(replicated.find),
        Row(call_swaps.find, effect=True),
        Row(ddp_setup.find),
        Row(replicas.find, effect=True),
        Row(not_synchronised.find, alone=True, effect=True),
        Row(batches.find),
        Row(numbers.find),
        Row(partial(_environment, stuck=stuck)),
        Row(own_ranks.find),
        Row(exit_status.find),
        Row(nothing_loaded.find),
        Row(unwaited_work.find),
        Row(resuming.find),
    )


def environment(recording: Recording, stuck: frozenset[int] = frozenset()) -> list[Finding]:
    """The findings about the environment; warnings and notes unless the ranks contradict each other."""
    found = (
        backends.find(recording),
        timeouts.find(recording, stuck),
        threads.find(recording),
        shared_memory.find(recording),
    )
    asked = engine.ask(Snapshot(recording), engine.of_package("environment"))
    return [*(finding for finding in found if finding is not None), *asked, *variables.find(recording)]


def _environment(recording: Recording, stuck: frozenset[int]) -> list[Finding]:
    declared = {code for rule in engine.of_package("environment") for code in rule.codes}
    return [finding for finding in environment(recording, stuck) if finding.code not in declared]


def find(recording: Recording, failures: Sequence[Finding], stuck: frozenset[int]) -> list[Finding]:
    """What is wrong besides the failures: errors first, then warnings and notes.

    Args:
        recording: what is known.
        failures: why ranks failed or are blocked; what they supersede is left out.
        stuck: the ranks that can never continue.
    """
    snap = Snapshot(recording, failures=tuple(failures))
    vars(snap)["stuck"] = stuck
    found = engine.ask(snap, engine.rules())
    for rule in _rules(stuck):
        errors = any(finding.severity == "error" for finding in found)
        if (rule.alone and failures) or (rule.effect and errors):
            continue
        known = {finding.type for finding in found}  # an earlier rule shows the cause, a later one only the effect
        gives = rule.find(recording) or ()
        gives = (gives,) if isinstance(gives, Finding) else gives
        found += [finding for finding in gives if finding.type not in known]
    superseded = {code for failure in failures for code in (failure.code, *failure.type.supersedes)}
    lines = {
        place
        for failure, ranks in (
            (one, frozenset(one.culprits) or one.concerned) for one in failures
        )  # in a tie either may have
        for place in failure.where
        if place[0] in ranks
    }
    rest = (
        finding
        for finding in found
        if finding.code not in superseded and not (finding.type.once_per_line and lines.issuperset(finding.where))
    )
    return sorted(rest, key=lambda finding: _ORDER[finding.severity])
