"""Panels wire a World to widgets: the only place where what is shown meets what is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpnb.control.run import Run
from ddpnb.errors import UsageError
from ddpnb.model.recording import Recording
from ddpnb.observe.verdict import diagnose
from ddpnb.world import World

if TYPE_CHECKING:
    from ddpnb.panels.panel import Panel


def show(what: World | Run | Recording | None = None) -> Panel:
    """Show it as a dashboard.

    Args:
        what: a World: live, with hands on it. A Run or a Recording: what it was at that moment.
            Nothing: a form that launches a world, and then its dashboard.

    Raises:
        UsageError: it is something else.
    """
    from ddpnb.panels.dashboard import Dashboard
    from ddpnb.panels.launcher import Launcher
    from ddpnb.panels.still import Still

    if what is None:
        return Launcher()
    if isinstance(what, World):
        return Dashboard(what)
    if isinstance(what, Run):
        return Still(what.recording or what.observer.record(), what.diagnosis)
    if isinstance(what, Recording):
        return Still(what, diagnose(what))
    raise UsageError(f"show() takes a World, a Run or a Recording, not {_kind(what)}.")


def _kind(what: Any) -> str:
    return type(what).__name__
