"""Show a cell while it runs on the ranks: one display, updated in place, until its outcome is known."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from contextvars import copy_context
from typing import Any
from weakref import WeakKeyDictionary

from IPython.display import display

from ddpnb.errors import Interrupted
from ddpnb.recording import phrases
from ddpnb.recording.rank_state import RankState
from ddpnb.render import cells
from ddpnb.render.cells import Display
from ddpnb.render.views.status import RankStatus, status
from ddpnb.texts import printable, relative
from ddpnb.world.run import Run
from ddpnb.world.run_output import RunOutput
from ddpnb.world.world import World

_TICK_S = 0.2
_LOOK_S = 0.5  # between two looks at what the ranks do
_NAMED_S = 3.0  # from then on it is said what the ranks do that still run
_ASK_S = 2.0  # and so often they are asked for that
_SHARE = 4  # showing takes one part in so many of the time
_MOST_LIVE = 20_000  # characters that are shown of them as long as that changes
_STILL = (RankState.HELD, RankState.WAITING, RankState.ENDED, RankState.IDLE)


_NOTHING = Display({"text/plain": "", "text/html": ""})
_KEPT: WeakKeyDictionary[World, list[Run]] = WeakKeyDictionary()  # runs of which a notebook shows a part only


class Cell:
    """A run that is shown. ``wait()`` follows it until the outcome is known; ``follow()`` does so in the background.

    Args:
        world: where it runs.
        run: the run.
        live: whether a display can be updated; else the run is shown once, at the end.
    """

    def __init__(self, world: World, run: Run, *, live: bool) -> None:
        self.run = run
        self._world = world
        self._live = live
        self._began = time.monotonic()
        self._ranks = tuple(run.endings)
        self._output = RunOutput(run)
        self._displays: list[tuple[Any, Display]] = []  # each output of the cell, and what it shows
        self._next_show = 0.0
        self._status: tuple[RankStatus, ...] = ()
        self._looked = 0.0
        self._told: list[str] = []
        self._asked = 0.0
        self._lock = threading.Lock()

    # -- following

    def wait(self) -> None:
        """Return when the outcome is known, or when ranks are held and the others wait (``follow()`` then continues).

        Raises:
            Interrupted: the ranks have been released.
        """
        try:
            while not self.run.wait(_TICK_S).done:
                if self._held():
                    self.follow()
                    break
                if self._live:
                    self.show()
            self.show()
        except Interrupted:
            self.show()
            raise
        except KeyboardInterrupt:  # while something was shown
            freed = self._world.release()
            self.show()
            raise Interrupted(str(freed)) from None

    def follow(self) -> None:
        """Continue to show it in the background, below the cell that runs now."""
        here = copy_context()  # which cell that is
        threading.Thread(
            target=here.run, args=(self._follow,), name=f"ddpnb cell {self.run.number}", daemon=True
        ).start()

    def _follow(self) -> None:
        with suppress(Exception):  # the world was closed; who shows is expendable
            while not self.run.wait(_TICK_S).done:
                self._look()
                if self._live:
                    self.show()
            self.show()

    def _look(self) -> tuple[RankStatus, ...]:
        if time.monotonic() - self._looked >= _LOOK_S:
            self._status = tuple(one for one in self._world.status().ranks if one.rank in self._ranks)
            self._looked = time.monotonic()
        return self._status

    def _held(self) -> bool:
        """Whether no rank progresses because ranks are held: the cell must return so that they can be stepped."""
        before, now = self._status, self._look()
        return (
            now is not before
            and [(one.rank, one.state, one.call) for one in before] == [(one.rank, one.state, one.call) for one in now]
            and any(one.state is RankState.HELD for one in now)
            and all(one.state in _STILL for one in now)
        )

    # -- showing

    def show(self) -> None:
        """Bring the outputs of the cell up to date."""
        with self._lock:
            began = time.monotonic()
            if not self.run.done and began < self._next_show:
                return
            shown = self._rendered()
            for number, one in enumerate([*shown, *[_NOTHING] * (len(self._displays) - len(shown))]):
                bundle, metadata = dict(one.data), dict(one.metadata)
                if number == len(self._displays):
                    handle = display(bundle, metadata=metadata, raw=True, display_id=True)
                    self._displays.append((handle, one))
                elif self._displays[number][1] != one:
                    handle = self._displays[number][0]
                    handle.update(bundle, metadata=metadata, raw=True)
                    self._displays[number] = handle, one
            now = time.monotonic()
            self._next_show = now + (_SHARE - 1) * (now - began)

    def _rendered(self) -> list[Display]:
        done = self.run.done
        blocks = self._output.blocks()
        most = cells.MOST if done else _MOST_LIVE
        if cells.is_cut(blocks, most) and done:
            kept = _KEPT.setdefault(self._world, [])  # with its logs: the output says where they are
            kept += [self.run] * (self.run not in kept)
        after: list[tuple[str, str]] = []
        found = self.run._monitor.diagnosis if done and self.run.outcome != "released" else None
        if found is not None and found.findings:
            after.append((str(found), found._repr_html_()))
            stuck = [rank for rank, ending in self.run.endings.items() if ending is None]
            if stuck:
                notes = [
                    f"{phrases.ranks(stuck, True)} {phrases.verb(stuck, 'is', 'are')} still blocked: inspect with %ddp_status "
                    "and %ddp_diff; %ddp_release --rebuild releases the ranks and creates a new process group."
                ]
                after.append((cells.text((), notes), cells.html((), notes)))
        return cells.bundles(blocks, self.run.missed if done else self._doing(), most, after, growing=not done)

    def _doing(self) -> list[str]:
        """What running ranks do, if that takes long or a rank is held."""
        if any(one.state is RankState.HELD for one in self._status):
            return [
                *_told(self._status),
                "%ddp_step and %ddp_resume let them continue; %ddp_diff compares their variables.",
            ]
        now = time.monotonic()
        if now - self._began >= _NAMED_S and now - self._asked >= _ASK_S:
            self._asked = now
            self._told = _told(one for one in status(self._world.snapshot()) if one.rank in self._ranks)
        return [f"After {now - self._began:.0f} s: {'; '.join(self._told)}."] if self._told else []


def _told(ranks: Iterable[RankStatus]) -> list[str]:
    """What ranks do, as text; ranks that do the same are grouped, ended ranks left out."""
    doing: dict[str, list[int]] = {}
    for one in ranks:
        if one.state is not RankState.ENDED:
            doing.setdefault(relative(printable(one.doing)), []).append(one.rank)
    return [f"{phrases.ranks(those)}: {what}" for what, those in doing.items()]
