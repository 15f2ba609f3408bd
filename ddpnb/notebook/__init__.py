"""Panels connect a World to widgets: they show its state, and call its methods on clicks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ddpnb.errors import UsageError
from ddpnb.recording.recording import Recording
from ddpnb.rules.diagnose import diagnose
from ddpnb.studies.bisection.bisecting import Bisection
from ddpnb.world.job import Job
from ddpnb.world.loading import load
from ddpnb.world.run import Run
from ddpnb.world.world import World

if TYPE_CHECKING:
    from ddpnb.notebook.panel import Panel

#: where a panel can be: in the cell, in a side panel, or beside the notebook
PLACES = ("here", "right", "left", "bottom", "split-right")


def show(
    what: World
    | Job
    | Run
    | Recording
    | Bisection
    | str
    | os.PathLike[str]
    | list[str | os.PathLike[str]]
    | None = None,
    *,
    where: str = "here",
) -> Panel:
    """Show a dashboard in the notebook, or beside it.

    Args:
        what: a World or a Job: its live ranks, with buttons to control them. A Run or a Recording: its state at that
            time, with buttons to re-enact and to export it. A Bisection: its guide. A path, or several: what
            ``ddpnb.load()`` reads there. None: a form that launches a World, attaches to a job that runs, or reads the
            logs and dumps that are dropped there, and then what shows these.
        where: "here": below the cell. "right" or "left": in that side panel of JupyterLab; "bottom" or "split-right":
            beside the notebook. A World or a Job has one such panel, which another call shows again; it is closed when
            its kernel ends. A page that has no such panels (Notebook 7, VS Code) shows it below the cell, and says so.

    Returns:
        A panel, which the notebook displays; ``text`` is its content as plain text.

    Raises:
        UsageError: any other object, a path at which nothing can be read, or no such place.

    Example:
        >>> ddpnb.show(world, where="right")
    """
    from ddpnb.notebook.docked import docked

    return docked(what, where, lambda: _made(what), live=isinstance(what, (World, Job)))


def _made(what: Any) -> Panel:
    from ddpnb.notebook.bisection_guide import Guide
    from ddpnb.notebook.dashboard import Dashboard
    from ddpnb.notebook.given_files import GivenFiles
    from ddpnb.notebook.launcher import Launcher
    from ddpnb.notebook.recorded import Recorded

    if what is None:
        return Launcher()
    if isinstance(what, (World, Job)):
        return Dashboard(what)
    if isinstance(what, Run):
        return Recorded(what.recording or what._monitor.observer.record(), what.diagnosis)
    if isinstance(what, (str, os.PathLike, list)):
        recording = load(what)
        paths = [os.fsdecode(one) for one in (what if isinstance(what, list) else [what])]
        return Recorded(recording, diagnose(recording), GivenFiles(paths))
    if isinstance(what, Recording):
        return Recorded(what, diagnose(what))
    if isinstance(what, Bisection):
        return Guide(what)
    raise UsageError(f"show() takes a World, a Job, a Run, a Recording, a Bisection or a path, not {_kind(what)}.")


def guide(command: str = "", n: int | None = None) -> Panel:
    """Show the guide of a bisection: what fails, and what may be the cause? It then finds out which.

    It makes the probes, or takes your own judgement of what you ran elsewhere. ``ddpnb.bisect()`` does the same from code.

    Args:
        command: that fails, as the form shows it at first: a script with its arguments, or a launch command.
        n: number of ranks of a script (default: one per GPU, else 2).

    Returns:
        A panel, which the notebook displays; ``text`` is its content as plain text.

    Example:
        >>> ddpnb.guide("train.py --amp --num-workers 4")
    """
    from ddpnb.notebook.bisection_guide import Guide

    return Guide(command=command, ranks=n)


def _kind(what: Any) -> str:
    return type(what).__name__
