"""Whether two runs fail in the same way."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ddpnb.bisection.algorithms import Answer
from ddpnb.errors import UsageError
from ddpnb.model.findings import Diagnosis, Finding
from ddpnb.rules.causes.usage_errors import REFUSED

Place = tuple[str, int, str]
_NO_PLACES: frozenset[Place] = frozenset()


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure by its finding, and the places that it names: those of the culprits, and those of the other ranks.

    ``code``: of the first error; None: the program failed without a finding. A place is file, line and function; files
    below the folder in which the program ran are named from there. ``culprits``: their places, none where it is not proven
    which they are: that is inferred from what came before, which differs between probes. ``others``: all other places.
    """

    code: str | None
    culprits: frozenset[Place] = _NO_PLACES
    others: frozenset[Place] = _NO_PLACES
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
        proven = self.culprits and other.culprits
        places = [
            {
                (file, function if moved else line)
                for file, line, function in one.culprits | (_NO_PLACES if proven else one.others)
            }
            for one in (self, other)
        ]
        # A failure without a place, such as sys.exit(), is none that names one.
        return not any(places) or not places[0].isdisjoint(places[1])

    def to_json(self) -> dict[str, Any]:
        places = {"culprits": sorted(map(list, self.culprits)), "others": sorted(map(list, self.others))}
        return {"code": self.code, **places, "summary": self.summary}

    @classmethod
    def from_json(cls, data: Any) -> Failure:
        """The failure that ``to_json()`` has described.

        Raises:
            UsageError: it is not one.
        """
        try:
            culprits, others = (
                frozenset((str(file), int(line), str(function)) for file, line, function in data[which])
                for which in ("culprits", "others")
            )
            return cls(None if data["code"] is None else str(data["code"]), culprits, others, str(data["summary"]))
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


def _failure(finding: Finding, folder: str) -> Failure:
    known = finding.culprits if finding.certainty == "proven" else ()
    places = [(rank, (_below(site.file, folder), site.line, site.function)) for rank, site in finding.where]
    return Failure(
        finding.code,
        frozenset(place for rank, place in places if rank in known),
        frozenset(place for rank, place in places if rank not in known),
        finding.summary.replace(os.path.join(folder, ""), ""),
    )


def _below(file: str, folder: str) -> str:
    path, folder = os.path.realpath(file), os.path.realpath(folder)
    return os.path.relpath(path, folder) if path.startswith(os.path.join(folder, "")) else file
