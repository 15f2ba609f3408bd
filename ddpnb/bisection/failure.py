"""Whether two runs fail in the same way."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ddpnb.bisection.algorithms import Answer
from ddpnb.diagnosis.causes.usage_errors import REFUSED
from ddpnb.errors import UsageError
from ddpnb.model.findings import Diagnosis, Finding


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure by its finding and the places of the culprits (of all ranks where it is not proven which they are).

    ``code``: of the first error; None: the program failed without a finding. ``places``: file, line, function; files below
    the folder in which the program ran are named from there.
    """

    code: str | None
    places: frozenset[tuple[str, int, str]] = frozenset()
    summary: str = ""

    @property
    def refused(self) -> bool:
        """Whether the script refused its arguments."""
        return self.summary.startswith(REFUSED)

    def same(self, other: Failure, *, moved: bool = False) -> bool:
        """Whether this is the same failure: the same finding with a place in common.

        Args:
            other: the other one.
            moved: the program's text differs, so that lines do: functions are compared.
        """
        if self.code is None or self.code != other.code or self.refused != other.refused:
            return self.code == other.code and self.summary == other.summary
        return not self.places or not other.places or bool(_compared(self, moved) & _compared(other, moved))

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "places": sorted(map(list, self.places)), "summary": self.summary}

    @classmethod
    def from_json(cls, data: Any) -> Failure:
        """The failure that ``to_json()`` has described.

        Raises:
            UsageError: it is not one.
        """
        try:
            places = frozenset((str(file), int(line), str(function)) for file, line, function in data["places"])
            return cls(None if data["code"] is None else str(data["code"]), places, str(data["summary"]))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError("this is not the log of a search.", "Give the file that a search has written.") from error


def failures(diagnosis: Diagnosis, status: int, folder: str) -> list[Failure]:
    """How a run failed, the root cause first; empty: it did not.

    Args:
        diagnosis: of the run.
        status: with which the command ended.
        folder: in which it ran.
    """
    found = [_failure(finding, folder) for finding in diagnosis.errors]
    if not found and (status or diagnosis.outcome != "ok"):
        hung = "all its processes are idle, and none has made a process group"
        return [Failure(None, summary=hung if diagnosis.outcome == "hang" else f"it ended with exit status {status}")]
    return found


def judge(original: Failure, found: list[Failure], *, moved: bool = False) -> Answer:
    """The answer of a run that failed in these ways.

    Args:
        original: the failure that is searched for.
        found: from ``failures``.
        moved: the program's text differs, so that lines do: functions are compared.

    Example:
        >>> judge(Failure("DDP301"), [])
        'good'
    """
    if not found:
        return "good"
    return "bad" if any(original.same(failure, moved=moved) for failure in found) else "other"


def _compared(failure: Failure, moved: bool) -> set[tuple[str, int | str]]:
    return {(file, function if moved else line) for file, line, function in failure.places}


def _failure(finding: Finding, folder: str) -> Failure:
    # Which of two ranks that wait for each other is at fault may be inferred from what came before, which a probe changes.
    known = finding.culprits if finding.certainty == "proven" else ()
    places = [site for rank, site in finding.where if rank in known] or [site for _, site in finding.where]
    named = frozenset((_below(site.file, folder), site.line, site.function) for site in places)
    return Failure(finding.code, named, finding.summary.replace(os.path.join(folder, ""), ""))


def _below(file: str, folder: str) -> str:
    path, folder = os.path.realpath(file), os.path.realpath(folder)
    return os.path.relpath(path, folder) if path.startswith(os.path.join(folder, "")) else file
