"""Whether a re-enactment gives the finding of the recording: the same code, ranks, operation and number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ddpnb.recording import phrases
from ddpnb.recording.findings import Finding
from ddpnb.studies.reenactment.plan import Plan


@dataclass(frozen=True, slots=True)
class Agreement:
    """``differences``: what the re-enactment gives differently, in sentences; none: it gives the same finding."""

    differences: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        return not self.differences


def compare(plan: Plan, found: Finding | None) -> Agreement:
    """Compare what the live ranks gave with what the recording says.

    Args:
        plan: of the re-enactment.
        found: the root cause of the live ranks.
    """
    expected = plan.expected
    if expected is None or found is None:
        if expected is found:
            return Agreement()
        return Agreement((f"The recording shows {_named(expected)}; the live ranks show {_named(found)}.",))
    differences: list[str] = []
    if found.code != expected.code:
        differences.append(f"The recording shows {_named(expected)}; the live ranks show {_named(found)}.")
    # That these make no call is not recorded: the recording cannot name them.
    unknown = {part.rank for part in plan.parts if part.how == "unknown"}
    differences += [
        f"{what} in the recording: {_ranks(wanted)}; of the live ranks: {_ranks(given)}."
        for what, wanted, given in (
            ("At fault", _here(plan, expected.culprits), found.culprits),
            (
                "The sides",
                _here(plan, (rank for side in expected.sides for rank in side)),
                tuple(sorted(rank for side in found.sides for rank in side)),
            ),
        )
        if not set(wanted) <= set(given) or not set(given) <= {*wanted, *unknown}
    ]
    mine, theirs = expected.collective, found.collective
    if mine is not None and theirs is not None and not expected.type.separate_calls:
        numbers = plan.numbers.get(mine.group.key, {})
        number = numbers.get(mine.seq, theirs.seq)
        ops = {
            step.given.op
            for part in plan.parts
            for step in part.steps
            if step.given is not None and step.kind[2].startswith(mine.op)
        }
        if theirs.op not in {mine.op, *ops} or (theirs.seq and theirs.seq != number):
            differences.append(
                f"The recording waits in {mine.title}, here #{number}; the live ranks in {theirs.title}."
            )
    return Agreement(tuple(differences))


def _named(finding: Finding | None) -> str:
    return "nothing" if finding is None else f"{finding.code} {finding.name}"


def _here(plan: Plan, ranks: Iterable[int]) -> tuple[int, ...]:
    """The live ranks that make the calls of these ranks."""
    wanted = set(ranks)
    return tuple(part.rank for part in plan.parts if part.original in wanted)


def _ranks(ranks: Iterable[int]) -> str:
    found = tuple(ranks)
    return phrases.ranks(found) if found else "none"
