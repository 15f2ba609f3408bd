"""The exceptions of ddpnb: each says what happened and what to do next."""

from __future__ import annotations

from ddpnb.texts import printable


class DdpnbError(Exception):
    """Base class of the exceptions of ddpnb.

    Args:
        what: what happened, one sentence.
        hint: what the reader should do next.
    """

    def __init__(self, what: str, hint: str = "") -> None:
        self.what, self.hint = printable(what), printable(hint)  # names of files and messages of ranks are in both
        super().__init__(self.what)

    def __str__(self) -> str:
        return f"{self.what}\n  {self.hint}" if self.hint else self.what

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: show the message, not the frames of ddpnb."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(DdpnbError, ValueError):
    """Invalid arguments, or a call that is not possible now."""


class ScriptNotFound(UsageError, FileNotFoundError):
    """The script to run does not exist or cannot be read."""


class DeviceError(UsageError):
    """The requested ranks do not fit the devices of this machine."""


class LaunchError(DdpnbError, RuntimeError):
    """The ranks did not start; all processes that were started have been stopped."""


class WorldError(DdpnbError, RuntimeError):
    """The World is not in a state that permits this (closed, busy, or a rank is dead)."""


class ProbeEnded(DdpnbError, RuntimeError):
    """A probe of a bisection was ended before its outcome was known: it has no answer, and can be made again."""


class CannotWrite(DdpnbError, OSError):
    """A file with results could not be written: the disk is full, or its folder does not exist."""


class CollectiveMismatch(DdpnbError, RuntimeError):
    """Raised by the fence on a rank instead of issuing a collective that does not match those of its peers."""


class ValuesDiffer(DdpnbError, RuntimeError):
    """Raised on a rank in place of a collective: a value that the program says is the same on all ranks (``ddpnb.same``) is not."""


class Released(DdpnbError, RuntimeError):
    """Raised on a rank by ``release()``, where the rank was waiting or computing."""


class InjectedFault(DdpnbError, RuntimeError):
    """Raised on a rank by an injected fault, at the call that the fault selects."""


class CellFailed(DdpnbError, RuntimeError):
    """A cell failed or hangs on a rank; the notebook stops here. The output of the cell shows the diagnosis."""


class Interrupted(KeyboardInterrupt):
    """A waiting cell was interrupted and its ranks were released; the text says which ranks were."""

    def _render_traceback_(self) -> list[str]:
        return [f"Interrupted: {self}"]
