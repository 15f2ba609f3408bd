"""Actions of a panel: they run in threads; their progress, and their result or error, are shown.

The threads of the page, of the actions and of the ranks draw the same widgets. Whatever they draw is read and shown under
``Tasks.drawing``: else one that was interrupted in between would replace an answer by the progress that it had read before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ddpnb.errors import DdpnbError
from ddpnb.render.answers import Answer


class Tasks:
    """The actions of one panel.

    Args:
        changed: draws the panel: called on any thread when ``busy`` or ``said`` changes, on one after the other.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.drawing = threading.RLock()  # of all that the panel shows
        self._going: dict[str, int] = {}
        self._progress: dict[str, str] = {}  # how far each is, if it says so
        self._places: dict[str, str] = {}  # where each was started
        self._answers: dict[str, Answer] = {}  # to the last action of each place
        self._lock = threading.Lock()

    @property
    def busy(self) -> tuple[str, ...]:
        """The actions in progress, as text."""
        with self._lock:
            return tuple(self._progress.get(what, what) for what in self._going)

    def draw(self) -> None:
        """Draw the panel as it is now."""
        with self.drawing:
            self._changed()

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
            going = [what for what in self._going if self._places.get(what) == place]
            busy = tuple(self._progress.get(what, what) for what in going)
            said = self._answers.get(place, Answer())
        return replace(said, busy=busy)

    def start(
        self, what: str, work: Callable[[], Any], place: str = "", *, again: bool = False, quiet: bool = False
    ) -> bool:
        """Run ``work`` in a new thread; show the text, or the Answer, that it returns.

        Args:
            what: the name of the action, shown while it runs.
            work: may raise; exceptions of ddpnb are shown as they are.
            place: where the user started it: its result is shown there.
            quiet: the user did not start it: keep the last message.
            again: start it even if the same action is in progress. Otherwise a second click does nothing.

        Returns:
            Whether it was started.
        """
        with self._lock:
            if what in self._going and not again:
                return False
            self._going[what] = self._going.get(what, 0) + 1
            if not quiet:
                self._places[what] = place
                self._answers.pop(place, None)
        threading.Thread(target=self._do, args=(what, work, place), name=f"ddpnb {what}", daemon=True).start()
        self.draw()
        return True

    def progress(self, what: str, text: str) -> None:
        """Show this text instead of the name of an action, as long as that is in progress."""
        with self._lock:
            if what not in self._going:
                return
            self._progress[what] = text
        self.draw()

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show this text."""
        with self._lock:
            self._answers[""] = Answer((), text, bad)
        self.draw()

    def forget(self) -> None:
        """Drop the results: they are of a state that is no more."""
        with self._lock:
            self._answers.clear()

    def withdraw(self, over: Callable[[Answer], bool]) -> None:
        """Drop the answers that are true no more."""
        with self._lock:
            self._answers = {place: answer for place, answer in self._answers.items() if not over(answer)}

    def _do(self, what: str, work: Callable[[], Any], place: str) -> None:
        answer = Answer()
        try:
            found = work()
            answer = found if isinstance(found, Answer) else Answer((), found if isinstance(found, str) else "")
        except DdpnbError as error:
            answer = Answer((), str(error), bad=True)
        except Exception as error:  # the panel is expendable: what failed is reported, and it continues
            answer = Answer((), f"{what} failed: {type(error).__name__}: {error}", bad=True)
        finally:
            with self.drawing:  # that it is done is seen with its answer
                with self._lock:
                    self._going[what] -= 1
                    if not self._going[what]:
                        del self._going[what]
                        self._places.pop(what, None)
                        self._progress.pop(what, None)
                    if answer.said:
                        self._answers[place] = answer
                self._changed()
