"""The warnings of a run that continues: printed once each, kept for the diagnosis, withdrawn when the ranks continue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.recording.recording import Recording
from ddpnb.rules import unproven
from ddpnb.texts import relative


class Warnings:
    """What was found of a run and is not proven.

    Args:
        say: prints a line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._given: list[Finding] = []
        self.is_over = False  # what ranks do from here on follows from a signal: no warning is withdrawn for that

    def warn(self, recording: Recording, finding: Finding) -> None:
        """Print a finding that is not proven."""
        self._given.append(finding)
        self._say(f"warning: {relative(unproven.sentence(recording, finding))}.")

    def withdraw(self, finding: Finding, ranks: tuple[int, ...], after_s: float) -> None:
        """Print that these ranks of a finding have continued after so many seconds."""
        if self.is_over:
            return
        continued = f"continued after {after_s:.0f} s"
        withdrawn = replace(
            finding,
            summary=f"{phrases.ranks(ranks, True)} {continued}: the warning is withdrawn.",
            evidence=(
                f"It was: {finding.summary}",
                *finding.evidence,
                f"Withdrawn: {phrases.ranks(ranks)} {continued}.",
            ),
            remedy="",
            withdrawn=True,
        )
        self._given = [withdrawn if known is finding else known for known in self._given]
        self._say(f"{phrases.ranks(ranks)} {continued}: the warning is withdrawn.")

    def standing(self) -> Diagnosis | None:
        """Those that are not withdrawn; None: there is none."""
        standing = tuple(warning for warning in self._given if not warning.withdrawn)
        return Diagnosis(findings=standing) if standing else None

    def added_to(self, diagnosis: Diagnosis) -> Diagnosis:
        """A diagnosis of the run with the warnings that it does not have itself."""
        known = {(finding.code, finding.culprits) for finding in diagnosis.findings}
        more = tuple(warning for warning in self._given if (warning.code, warning.culprits) not in known)
        return replace(diagnosis, findings=(*diagnosis.findings, *more))
