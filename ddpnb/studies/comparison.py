"""``ddpnb.compare_runs``: two runs side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ddpnb.errors import UsageError
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render import as_html
from ddpnb.render.document import Block
from ddpnb.render.runs import comparison
from ddpnb.render.shown import Shown
from ddpnb.render.views.run_differences import Difference, first_differences
from ddpnb.world.run import Run


@dataclass(frozen=True, slots=True, repr=False)
class RunComparison(Shown):
    """The result of ``compare_runs``: the findings and the time of both, and where their ranks differ first.

    ``differences`` has at most one entry of each kind: executed lines, calls, endings, outputs. Without any, what was
    recorded of both is the same.
    """

    labels: tuple[str, str]
    diagnoses: tuple[Diagnosis, Diagnosis]
    recordings: tuple[Recording, Recording]
    differences: tuple[Difference, ...]
    _label: ClassVar[str] = "two runs"

    def _document(self) -> list[Block]:
        return [comparison(self.labels, self.diagnoses, self.recordings, self.differences)]

    @property
    def html(self) -> str:
        """As a part of a page that has the style sheet."""
        return as_html.html(*self._document())


def compare_runs(first: Run, second: Run) -> RunComparison:
    """Compare two runs whose outcomes are known: findings, time, and the first difference of what was recorded.

    Args:
        first: a run, such as ``world.runs[-2]``.
        second: another one, of the same World or of another.

    Returns:
        The comparison, which shows itself.

    Raises:
        UsageError: an object that is no run, or a run whose outcome is not known yet.

    Example:
        >>> print(ddpnb.compare_runs(*world.runs[-2:]))
    """
    for run in (first, second):
        if not isinstance(run, Run):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"compare_runs() takes two runs, not {type(run).__name__}.", "world.runs lists the last.")
        if run.recording is None:
            raise UsageError(f"the outcome of run {run.number} is not known.", "run.wait() waits for it.")
    left, right = first.recording, second.recording
    assert left is not None and right is not None
    return RunComparison(
        (f"run {first.number}: {first.what}", f"run {second.number}: {second.what}"),
        (first.diagnosis, second.diagnosis),
        (left, right),
        first_differences(left, right),
    )
