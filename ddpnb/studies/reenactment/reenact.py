"""``ddpnb.reenact`` and ``ddpnb.export``: a recorded hang on live ranks, and as a script."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.recording import arguments
from ddpnb.recording.files import check_writable, write_whole
from ddpnb.recording.findings import Finding
from ddpnb.recording.recording import Recording
from ddpnb.render import card
from ddpnb.render.document import Block, Paragraph
from ddpnb.render.shown import Shown
from ddpnb.studies.bisection.bisecting import Bisection
from ddpnb.studies.reenactment.agreement import Agreement, compare
from ddpnb.studies.reenactment.plan import Plan, root
from ddpnb.studies.reenactment.planning import MOST, plan_of
from ddpnb.studies.reenactment.script import TIMEOUT_S, script_of
from ddpnb.studies.reenactment.words import document
from ddpnb.world.end_by_signal import StartedJob
from ddpnb.world.launching import launch
from ddpnb.world.loading import load
from ddpnb.world.run import Run
from ddpnb.world.world import World

Path = str | os.PathLike[str]
_SCRIPT = "reenact.py"
_FEW = 3  # files that are named
_LIVE_TIMEOUT_S = 1800  # the ranks of a re-enactment hang for as long as one looks at them
PATIENCE_S = 2.0  # a rank of a re-enactment that is in no call is meant to be: nothing else would be awaited
WAIT_S = 15.0  # besides


class Reenactment(Shown, StartedJob):
    """A recorded hang on live ranks, as ``ddpnb.reenact()`` returns it. It shows whether it is the same hang.

    The ranks wait in the calls in which the recorded ones waited: ``world`` inspects, holds, steps and releases them.
    Use it as a context manager, or call ``close()``.

    Example:
        >>> with ddpnb.reenact("hang.ddpnb") as reenactment:
        ...     print(reenactment.same, reenactment.finding.code)
        True DDP301
    """

    _label = "re-enactment"

    def __init__(self, plan: Plan, world: World, run: Run, script: str, end: ExitStack) -> None:
        self.plan, self.world, self.run = plan, world, run
        #: the path of what the ranks run; ``ddpnb.export()`` writes the same, with a shorter time-out
        self.script = script
        self._end = end

    def wait(self) -> Reenactment:
        """Wait until the outcome is known, or is not expected any more, as where a rank computes.

        Returns:
            This re-enactment.

        Raises:
            WorldError: a rank could not start.

        Example:
            >>> ddpnb.reenact("hang.ddpnb", wait=False).wait().same
            True
        """
        self.run.wait(PATIENCE_S + WAIT_S)
        return self

    @property
    def expected(self) -> Finding | None:
        """The finding of the recording."""
        return self.plan.expected

    @property
    def finding(self) -> Finding | None:
        """The finding of the live ranks; None: there is none."""
        return root(self.run.diagnosis)

    @property
    def agreement(self) -> Agreement:
        """What the live ranks give differently from the recording."""
        return compare(self.plan, self.finding)

    @property
    def same(self) -> bool:
        """Whether the live ranks give the finding of the recording: its code, its ranks, its call."""
        return self.agreement.same

    def _document(self) -> list[Block]:
        return [document(self.plan, self.agreement), Paragraph(), *card.blocks(self.run.diagnosis)]


def reenact(
    recording: Recording | Run | Path | Sequence[Path],
    world: World | None = None,
    *,
    ranks: int = MOST,
    wait: bool = True,
    quiet: bool = True,
) -> Reenactment:
    """Re-enact a recorded hang on live ranks: they make the same calls in the same order, with small tensors.

    Args:
        recording: a Recording, a run that has ended, or what ``ddpnb.load()`` reads.
        world: whose ranks to use, as many as the plan has; None: launch some, on the CPU.
        ranks: at most so many. Of a larger job, a few ranks of each kind are re-enacted.
        wait: until the outcome is known, or for as long as patience where it never is.
        quiet: show no progress and no output of the ranks.

    Returns:
        The re-enactment: its run, its finding, and whether that is the one of the recording.

    Raises:
        UsageError: there is nothing to re-enact, or the World has another number of ranks.
        LaunchError, WorldError: as ``launch()`` and ``World.run()``.

    Example:
        >>> with ddpnb.reenact("hang.ddpnb") as reenactment:
        ...     reenactment.world.status()
    """
    with ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="ddpnb-reenact-"))
        plan, path = write_script(recording, folder, ranks)
        if world is not None and plan.size != world.size:
            raise UsageError(
                f"the re-enactment has {plan.size} ranks, and the World {world.size}.",
                f"Launch {plan.size} ranks, or leave world out.",
            )
        live = undo.enter_context(launch(plan.size, backend="gloo", quiet=quiet)) if world is None else world
        run = live.run(path, stream=not quiet, patience=PATIENCE_S, end_after_patience=True)
        reenactment = Reenactment(plan, live, run, path, undo)
        if wait:
            reenactment.wait()
        reenactment._end = undo.pop_all()
        return reenactment


def write_script(source: Any, folder: str, ranks: int) -> tuple[Plan, str]:
    """Write the script that live ranks run.

    Args:
        source: as for ``reenact()``.
        folder: for the script.
        ranks: at most so many.

    Returns:
        The plan, and the path of the script.

    Raises:
        UsageError: there is nothing to re-enact.
    """
    name, given = recorded(source)
    plan = plan_of(given, _most(ranks))
    path = os.path.join(folder, _SCRIPT)
    write_whole(path, script_of(plan, name, _LIVE_TIMEOUT_S, _SCRIPT))
    return plan, path


def export(
    source: Recording | Run | Bisection | Path | Sequence[Path],
    path: Path,
    *,
    ranks: int = MOST,
    timeout: int = TIMEOUT_S,
) -> int:
    """Write a small script that hangs as a recording does: plain torch, for torchrun, without ddpnb.

    Args:
        source: as for ``reenact()``; of a bisection, its smallest failing command is written as a shell script.
        path: of the script, which is replaced.
        ranks: at most so many.
        timeout: of its calls, in seconds: the script ends after it.

    Returns:
        The number of ranks to run it on; 0 for a bisection.

    Raises:
        UsageError: there is nothing to re-enact, or the bisection has found no command.
        CannotWrite: the file cannot be written.

    Example:
        >>> ddpnb.export("hang.ddpnb", "repro.py")
    """
    check_writable(path)
    if isinstance(source, Bisection):
        result = source.result
        if result is not None and result.outcome == "found" and not (source.typed() or source.commit()):
            raise UsageError(
                "functions have no command line that a script could run.",
                "Run those that fail with world.run(), and export that run.",
            )
        source.write_repro(path)
        return 0
    seconds = arguments.whole("timeout", timeout, 1, 86400)
    name, given = recorded(source)
    plan = plan_of(given, _most(ranks))
    write_whole(path, script_of(plan, name, seconds, os.path.basename(os.fspath(path))))
    return plan.size


def recorded(source: Any) -> tuple[str, Recording]:
    """What to call a recording, and the recording itself."""
    if isinstance(source, Recording):
        return _names([one.path for one in source.report.sources] if source.report is not None else []), source
    if isinstance(source, Run):
        recording = source.recording
        if recording is None:
            raise UsageError("the run is in progress.", "Wait for its outcome, or give world.snapshot().")
        return f"run {source.number}", recording
    paths = source if isinstance(source, (list, tuple)) else [source]
    return _names([os.fsdecode(one) for one in paths if isinstance(one, (str, os.PathLike))]), load(source)


def _names(paths: Sequence[str]) -> str:
    """What to call the files that a recording was read from."""
    names = list(dict.fromkeys(os.path.basename(os.path.normpath(path)) for path in paths))
    return f"{len(names)} files such as {names[0]}" if len(names) > _FEW else ", ".join(names) or "a recording"


def _most(ranks: int) -> int:
    return arguments.whole("ranks", ranks, 2, 64)
