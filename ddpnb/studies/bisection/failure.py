"""How a run fails, and whether two runs fail in the same way.

A failure is a finding as in the diagnosis's JSON; files below the folder in which the program ran are named from there. One
without a finding has the code None, and a summary.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.rules.causes.usage_errors import REFUSED
from ddpnb.studies.bisection.algorithms import Answer

Failure = dict[str, Any]


def failures(diagnosis: Diagnosis, status: int, folder: str) -> list[Failure]:
    """How a run failed, the root cause first; empty: it did not.

    Args:
        diagnosis: of the run.
        status: with which the command ended.
        folder: in which it ran.
    """
    errors = [one for one in diagnosis.to_json()["findings"] if one["severity"] == "error"]
    if not errors and (status or diagnosis.outcome != "ok"):
        hung = "all its processes are idle, and none has made a process group"
        return [
            {"code": None, "summary": hung if diagnosis.outcome == "hang" else f"it ended with exit status {status}"}
        ]
    text = json.dumps(errors, ensure_ascii=False)
    for base in sorted({folder, os.path.realpath(folder)}, key=len, reverse=True):
        text = text.replace(os.path.join(base, ""), "")
    return json.loads(text)


def judge(original: Failure, found: Sequence[Failure], *, moved: bool = False) -> Answer:
    """The answer of a run that failed in these ways.

    Args:
        original: the failure that is searched for.
        found: from ``failures``.
        moved: the program's text differs, so that lines do: functions are compared.

    Example:
        >>> judge({"code": None, "summary": "it ended with exit status 1"}, [])
        'good'
    """
    if not found:
        return "good"
    return "bad" if any(same(original, failure, moved=moved) for failure in found) else "other"


def same(one: Failure, other: Failure, *, moved: bool = False) -> bool:
    """Whether this is the same failure: the same finding with a place in common.

    Where it is not proven which ranks are at fault, the places of all count: that is inferred from what came before, which
    differs between probes.
    """
    if one["code"] is None or one["code"] != other["code"] or refused(one) != refused(other):
        return one["code"] == other["code"] and one["summary"] == other["summary"]
    proven = all(failure["certainty"] == "proven" and _places(failure, moved, True) for failure in (one, other))
    places = [_places(failure, moved, proven) for failure in (one, other)]
    # A failure without a place, such as sys.exit(), is none that names one.
    return not any(places) or not places[0].isdisjoint(places[1])


def refused(failure: Failure) -> bool:
    """Whether the script refused its arguments."""
    return failure["summary"].startswith(REFUSED)


def read(data: Any) -> Failure:
    """A failure that a log has kept.

    Raises:
        KeyError, TypeError, ValueError: it is not one.
    """
    if data["code"] is None:
        return {"code": None, "summary": str(data["summary"])}
    Finding.from_json(data)
    return data


def _places(failure: Failure, moved: bool, of_culprits: bool) -> set[tuple[str, Any]]:
    return {
        (site["file"], site["function" if moved else "line"])
        for site in failure["where"]
        if not of_culprits or site["rank"] in failure["culprits"]
    }
