"""The family of errors that ddpnb raises: each says what happened and what to do next."""

from __future__ import annotations


class DdpnbError(Exception):
    """Root of the family.

    Args:
        what: what happened, one sentence.
        hint: what the reader should do next.
    """

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n  {self.hint}" if self.hint else self.what

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: show the message, not the frames of ddpnb."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(DdpnbError, ValueError):
    """A call that cannot be carried out as it was asked for."""


class ScriptNotFound(UsageError, FileNotFoundError):
    """The script to run does not exist or cannot be read."""


class DeviceError(UsageError):
    """The ranks that were asked for do not fit the devices of this machine."""


class LaunchError(DdpnbError, RuntimeError):
    """The world did not come up; everything that was started has been stopped."""


class WorldError(DdpnbError, RuntimeError):
    """The world is not in a state in which it can do this (closed, busy, a rank gone)."""


class CannotWrite(DdpnbError, OSError):
    """A file with results could not be written: the disk is full, or its folder has gone."""


class CollectiveMismatch(DdpnbError, RuntimeError):
    """Raised by the fence on a rank, in place of a call that its peers did not make alike."""


class Released(DdpnbError, RuntimeError):
    """Raised on a rank in place of what it was waiting for, when it is released."""


class InjectedFault(DdpnbError, RuntimeError):
    """Raised on a rank at the call that was chosen for it: a fault that was asked for."""


class CellFailed(DdpnbError, RuntimeError):
    """A cell did not end well on all ranks: the notebook stops here. What there is to say stands in its output."""


class Interrupted(KeyboardInterrupt):
    """An interrupt of a waiting prompt; the ranks have been released. Its text says which are back."""

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}"]
