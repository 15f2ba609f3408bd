"""A run: one script or function on all ranks, monitored until it ends or is known never to end."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from ddpnb.errors import WorldError
from ddpnb.ranks.observe import logs
from ddpnb.recording import arguments
from ddpnb.recording.curves import Curves
from ddpnb.recording.ending import UNKNOWN_SIGNAL, Ending
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.recording.timing.account import account
from ddpnb.render.account import TimeAccount
from ddpnb.render.parting import Partings, partings
from ddpnb.render.source_lines import SourceLines, lines
from ddpnb.world.run_monitor import RunMonitor

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Run:
    """One script, function or cell on the ranks. Made by ``World.run`` and ``World.execute``.

    ``wait()`` returns when the run has ended or is known never to end; ``outcome`` and ``diagnosis`` then say
    what happened. The ranks of a hang stay alive and can be inspected (``World.snapshot()``).

    Example:
        >>> run = world.run("train.py", "--steps", "20").wait()
        >>> run.outcome
        'hang'
        >>> run.diagnosis.findings[0].code
        'DDP301'
    """

    def __init__(self, monitor: RunMonitor) -> None:
        self._monitor = monitor

    @property
    def number(self) -> int:
        """The number of the run in its World, from 1; start-ups count too."""
        return self._monitor.number

    @property
    def what(self) -> str:
        """What runs: ``train.py --steps 20``, ``function train``, ``cell``; empty for a job that was started elsewhere."""
        return self._monitor.what

    @property
    def began(self) -> float:
        """When it began, as ``time.time()``."""
        return self._monitor.began_at

    @property
    def log_dir(self) -> str:
        """The folder with the complete output of each rank: ``rank0.log`` ..."""
        return self._monitor.log_dir

    @property
    def patience(self) -> float:
        """Seconds that a rank may be blocked outside any collective before it is reported as a hang."""
        return self._monitor.patience

    def wait(self, timeout: float | None = None) -> Run:
        """Wait until the run has ended or is known never to end. While ranks are held it has done neither, which is printed.

        Args:
            timeout: seconds to wait at most; None: no limit. ``done`` says whether the outcome is known.

        Returns:
            This run.

        Raises:
            UsageError: ``timeout`` is no number of seconds.
            WorldError: a rank could not start the run, or monitoring failed.

        Example:
            >>> world.run("train.py").wait(60).done
            True
        """
        self._monitor.await_outcome(timeout)
        failure = self._monitor.failure
        if failure is not None:
            what = getattr(failure, "what", "") or f"{failure}."
            folder = self._monitor.kept_logs()
            logs_at = f"The output of the ranks is in {folder}." if folder else ""
            raise WorldError(
                f"monitoring of run {self.number} failed: {what}", f"{getattr(failure, 'hint', '')} {logs_at}".strip()
            )
        return self

    @property
    def done(self) -> bool:
        """Whether the outcome is known. A run that hangs is done, too."""
        return self._monitor.known.is_set()

    @property
    def outcome(self) -> str:
        """``running``, ``ok``, ``hang``, ``crash``, ``divergence``, or ``released`` if the ranks were released first.

        ``unknown`` if monitoring failed: ``wait()`` says why.
        """
        return self._monitor.outcome

    @property
    def diagnosis(self) -> Diagnosis:
        """The findings, root cause first; while the run is in progress, those of this moment."""
        return self._monitor.diagnosis or self._monitor.diagnose_now()[0]

    @property
    def recording(self) -> Recording | None:
        """The Recording that the diagnosis is based on; None while the run is in progress."""
        return self._monitor.recording

    @property
    def account(self) -> TimeAccount:
        """Where the time of each rank went, and which ranks the others waited for; also while it runs."""
        recording = self.recording
        if recording is not None:
            return TimeAccount.of(account(recording))
        return TimeAccount.of(self._monitor.observer.account(time.monotonic_ns()))

    def lines(self, file: str | None = None, window: int | str = -1) -> SourceLines:
        """Which ranks ran which line of a file: see ``ddpnb.lines()``; also while the run is in progress.

        Args:
            file: a path, or the end of one; None: the file in which the ranks part first.
            window: -1: since the last collective or optimizer step that all ranks have begun; -2: the part before, and
                so on; ``"run"``: the whole run.

        Returns:
            The lines of the file; shown, those that not all ranks ran.

        Raises:
            UsageError: no rank ran a line of this file, or there is no such part of the run.

        Example:
            >>> run.lines("train.py", window="run")
        """
        return lines(self.recording or self._monitor.observer.record(ask=False), file, window)

    @property
    def partings(self) -> Partings:
        """Where the ways of the ranks part: see ``ddpnb.partings()``; also while the run is in progress."""
        return partings(self.recording or self._monitor.observer.record())

    def plot(self, ax: Axes | None = None, *, begin: float | None = None, end: float | None = None) -> Axes:
        """Draw the time line: see ``Recording.plot``; also while the run is in progress.

        Args:
            ax: Axes to draw on; None: those of a new figure, which a notebook shows.
            begin, end: seconds since the first recorded call; None: as much as is recorded.

        Returns:
            The Axes; ``ax.figure.savefig()`` saves the figure.

        Raises:
            UsageError: ``ax`` is something else, or ``end`` is not after ``begin``.

        Example:
            >>> run.plot()
        """
        from ddpnb.render.nouns import plot

        recording = self.recording
        known = self._monitor.diagnosis if recording is not None else None
        return plot(recording or self._monitor.observer.record(ask=False), known, ax, begin=begin, end=end)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one HTML file to share: see ``Recording.to_html``; also while the run is in progress.

        Args:
            path: of a file, which is replaced.

        Raises:
            UsageError: ``path`` is not a path.
            CannotWrite: the disk is full, or the folder does not exist.

        Example:
            >>> run.to_html("run.html")
        """
        from ddpnb.render.nouns import save_html

        save_html(self.recording or self._monitor.observer.record(), path, self.diagnosis)

    @property
    def curves(self) -> Curves:
        """Loss, memory and use of each rank over time, up to now or to the outcome: see ``plot_curves()``."""
        recording = self.recording
        known = recording.curves if recording is not None else None
        return known if known is not None else self._monitor.observer.curves()

    def plot_curves(self, ax: Axes | None = None, *, what: str = "loss") -> Axes:
        """Draw loss, memory and use: see ``Recording.plot_curves``; also while the run is in progress.

        Args:
            ax: Axes to draw one quantity on; None: those of a new figure with all of them, which a notebook shows.
            what: which quantity ``ax`` gets: ``loss``, ``memory``, ``device_memory``, ``cores`` or ``device_busy``.

        Returns:
            The first Axes; ``ax.figure.axes`` has the others, ``ax.figure.savefig()`` saves the figure.

        Raises:
            UsageError: ``ax`` or ``what`` is something else.

        Example:
            >>> run.plot_curves()
        """
        from ddpnb.render.nouns import plot_curves

        return plot_curves(self.recording or self._monitor.observer.record(ask=False), ax, what)

    @property
    def endings(self) -> dict[int, Ending | None]:
        """rank -> how the script ended; None if it has not."""
        return {rank: self._monitor.observer.ending(rank) for rank in self._monitor.ranks}

    @property
    def results(self) -> list[Any]:
        """What the function returned on each rank, in rank order; None if it did not return.

        The ranks send pickles. They are loaded only when this is read, since unpickling can run code.
        """
        answers = self._monitor.answers
        return [
            answers[rank].load(timeout=30)
            if ending is not None and ending.how == "finished" and rank in answers
            else None
            for rank, ending in self.endings.items()
        ]

    @property
    def missed(self) -> list[str]:
        """The faults that were armed for this run and never triggered, and the holds that stopped nobody, as text."""
        return self._monitor.missed()

    def log(self, rank: int) -> str:
        """The complete standard output and error of a rank.

        Args:
            rank: a rank of this run.

        Returns:
            The text, also while the run is in progress.

        Raises:
            UsageError: the rank is not in this run.

        Example:
            >>> print(run.log(0))
            step 1: loss 2.31
        """
        return logs.whole(self._monitor.logs[arguments.member("rank", rank, self._monitor.logs)])

    @property
    def exit_status(self) -> int:
        """What ``ddpnb run`` exits with: 0, the script's own status, 3 (hang) or 4 (divergence)."""
        if self.outcome != "crash":
            return {"ok": 0, "hang": 3, "divergence": 4}.get(self.outcome, 1)
        culprits = {rank for finding in self.diagnosis.errors[:1] for rank in finding.culprits}
        failed = [(rank not in culprits, e.at_ns, e.code) for rank, e in self.endings.items() if e and not e.well]
        code = min(failed)[-1] if failed else 1
        return 128 - code if UNKNOWN_SIGNAL < code < 0 else max(code, 1)

    def __repr__(self) -> str:
        return f"<Run {self.number}: {self.outcome}, {len(self._monitor.ranks)} ranks, logs in {self.log_dir}>"
