"""``ddpnb.explain``: of a log what ``ddpnb.diagnose`` says of it, with the pages of the findings; of anything else what it means."""

from __future__ import annotations

import os
import tempfile

from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.render import explanation
from ddpnb.render.explanation import Explanation


def explain(what: str | int | BaseException | Finding | Diagnosis | os.PathLike[str]) -> Explanation:
    """Explain a finding, an error or a log, and how to fix it.

    Args:
        what: a code (``"DDP301"``, ``301``, ``"collective-missing"``), an exception, a text (a message, a
            traceback, a log), a ``pathlib.Path`` of a log or a folder of logs, a finding or a diagnosis. A few words that
            are no error are looked for in the catalogue.

    Returns:
        The explanation, which displays itself; false if nothing was recognised.

    Raises:
        UsageError: there is no such code, a file cannot be read, or it is nothing that can be explained.

    Example:
        >>> ddpnb.explain("DDP301").codes
        ('DDP301',)
    """
    return of_log(os.fspath(what)) if isinstance(what, os.PathLike) else explanation.explain(what)


def of_log(path: str) -> Explanation:
    """Explain a log: all ranks together, as ``diagnose`` does, then the page of each code.

    Raises:
        UsageError: it cannot be read.
    """
    from ddpnb.reports.reading import NothingKnown, unread  # they need numpy, a page does not
    from ddpnb.rules.diagnose import diagnose
    from ddpnb.world import loading

    try:
        recording = loading.load(path)
    except NothingKnown:
        return explanation.of_text(explanation.read_log(path))
    errors = diagnose(recording).errors
    if not errors:
        found = explanation.of_text(explanation.read_log(path))
        outside = recording.report.outside if recording.report is not None else ""
        return found if found or not outside else Explanation(note=f"{outside}; no rank is known to have failed.")
    return explanation.of_findings(errors, " ".join(unread(recording)))


def of_bytes(data: bytes) -> Explanation:
    """Explain a log that was read from a pipe."""
    with tempfile.NamedTemporaryFile(prefix="ddpnb-") as file:
        file.write(data)
        file.flush()
        return of_log(file.name)
