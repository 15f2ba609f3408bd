"""Actions of a panel: they run in threads; their result or error is shown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ddpnb.errors import DdpnbError
from ddpnb.render.answers import Answer


class Tasks:
    """The actions of one panel.

    Args:
        changed: called on any thread when ``busy`` or ``said`` changes.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._going: dict[str, int] = {}
        self._places: dict[str, str] = {}  # where each was started
        self._answers: dict[str, Answer] = {}  # to the last action of each place
        self._lock = threading.Lock()

    @property
    def busy(self) -> tuple[str, ...]:
        """The actions in progress, as text."""
        with self._lock:
            return tuple(self._going)

    @property
    def said(self) -> str:
        """The result of the last action."""
        return self.answer("").said

    @property
    def bad(self) -> bool:
        """Whether it is an error."""
        return self.answer("").bad

    def answer(self, place: str) -> Answer:
        """What stands beside the buttons of a place: the actions that were started there, and the last result.

        It stays until the next action of the same place: nothing moves where others are pressed.
        """
        with self._lock:
            busy = tuple(what for what in self._going if self._places.get(what) == place)
            said = self._answers.get(place, Answer())
        return Answer(busy, said.said, said.bad)

    def start(
        self, what: str, work: Callable[[], Any], place: str = "", *, again: bool = False, quiet: bool = False
    ) -> None:
        """Run ``work`` in a new thread; show the text that it returns.

        Args:
            what: the name of the action, shown while it runs.
            work: may raise; exceptions of ddpnb are shown as they are.
            place: where the user started it: its result is shown there.
            quiet: the user did not start it: keep the last message.
            again: start it even if the same action is in progress. Otherwise a second click does nothing.
        """
        with self._lock:
            if what in self._going and not again:
                return
            self._going[what] = self._going.get(what, 0) + 1
            if not quiet:
                self._places[what] = place
                self._answers.pop(place, None)
        threading.Thread(target=self._do, args=(what, work, place), name=f"ddpnb {what}", daemon=True).start()
        self._changed()

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show this text."""
        with self._lock:
            self._answers[""] = Answer((), text, bad)
        self._changed()

    def forget(self) -> None:
        """Drop the results: they are of a state that is no more."""
        with self._lock:
            self._answers.clear()

    def _do(self, what: str, work: Callable[[], Any], place: str) -> None:
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
                    self._places.pop(what, None)
                if said:
                    self._answers[place] = Answer((), said, bad)
        self._changed()
