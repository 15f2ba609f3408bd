"""Actions of a panel: they run in threads; their result or error is shown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ddpnb.errors import DdpnbError


class Tasks:
    """The actions of one panel.

    Args:
        changed: called on any thread when ``busy`` or ``said`` changes.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.said = ""
        self.bad = False
        self._changed = changed
        self._going: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def busy(self) -> tuple[str, ...]:
        """The actions in progress, as text."""
        with self._lock:
            return tuple(self._going)

    def start(self, what: str, work: Callable[[], Any], *, again: bool = False, quiet: bool = False) -> None:
        """Run ``work`` in a new thread; show the text that it returns.

        Args:
            what: the name of the action, shown while it runs.
            work: may raise; exceptions of ddpnb are shown as they are.
            quiet: the user did not start it: keep the last message.
            again: start it even if the same action is in progress. Otherwise a second click does nothing.
        """
        with self._lock:
            if what in self._going and not again:
                return
            self._going[what] = self._going.get(what, 0) + 1
        if not quiet:
            self.said, self.bad = "", False
        threading.Thread(target=self._do, args=(what, work), name=f"ddpnb {what}", daemon=True).start()
        self._changed()

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show this text."""
        self.said, self.bad = text, bad
        self._changed()

    def _do(self, what: str, work: Callable[[], Any]) -> None:
        said, bad = "", False
        try:
            found = work()
            said = found if isinstance(found, str) else ""
        except DdpnbError as error:
            said, bad = str(error), True
        except Exception as error:  # the panel is expendable: what failed is reported, and it continues
            said, bad = f"{what} failed: {type(error).__name__}: {error}", True
        finally:
            with self._lock:
                self._going[what] -= 1
                if not self._going[what]:
                    del self._going[what]
        if said:
            self.said, self.bad = said, bad
        self._changed()
