"""Show a cell while it runs on the ranks: one display, updated in place, until its outcome is known."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from IPython.display import display

from ddpnb.control.run import Run
from ddpnb.errors import Interrupted
from ddpnb.model import phrases
from ddpnb.model.rank_state import RankState
from ddpnb.render import cells
from ddpnb.render.text import printable, relative
from ddpnb.views.status import RankStatus, status
from ddpnb.world import World

_TICK_S = 0.2
_LOOK_S = 0.5  # between two looks at what the ranks do
_NAMED_S = 3.0  # from then on it is said what the ranks do that still run
_ASK_S = 2.0  # and so often they are asked for that
_KEPT = cells.MOST  # bytes of each rank's output that are kept to be shown
_MOST_LIVE = 20_000  # characters that are shown of them as long as that changes
_STILL = (RankState.HELD, RankState.WAITING, RankState.ENDED, RankState.IDLE)


class Log:
    """The end of a rank's log, read as it grows, and a digest of all of it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tail = b""
        self._size = 0
        self._digest = 0

    def read(self) -> cells.Output:
        """The output so far. If the file was removed with its World, what was read before."""
        with suppress(OSError), Path(self._path).open("rb") as file:
            file.seek(self._size)
            while block := file.read(1 << 20):
                self._size += len(block)
                self._digest = zlib.crc32(block, self._digest)
                self._tail = (self._tail + block)[-_KEPT:]
        left_out = self._size - len(self._tail)
        tail = self._tail.partition(b"\n")[2] or self._tail if left_out else self._tail
        text = cells.as_seen(tail.decode("utf-8", "replace"))
        return cells.Output(text, "", left_out, self._digest if left_out else 0, self._path)


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
        self._logs = {rank: Log(str(Path(run.log_dir, f"rank{rank}.log"))) for rank in self._ranks}
        self._display: Any = None
        self._shown = ""
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
        """Continue to show it in the background."""
        threading.Thread(target=self._follow, name=f"ddpnb cell {self.run.number}", daemon=True).start()

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
        """Bring the display up to date."""
        with self._lock:
            plain, rich = self._rendered()
            if plain == self._shown:
                return
            bundle = {"text/plain": plain, "text/html": rich}
            if self._display is None:
                self._display = display(bundle, raw=True, display_id=True)
            else:
                self._display.update(bundle, raw=True)
            self._shown = plain

    def _rendered(self) -> tuple[str, str]:
        done = self.run.done
        outputs = {rank: log.read() for rank, log in self._logs.items()}
        raised = self._without_tracebacks(outputs) if done else {}
        blocks = [*cells.fold(outputs, growing=not done), *cells.fold(raised)]
        notes = self.run.missed if done else self._doing()
        most = cells.MOST if done else _MOST_LIVE
        plain = [cells.text(blocks, notes, most)] if blocks or notes else []
        rich = [cells.html(blocks, notes, most)] if blocks or notes else []
        found = self.run._monitor.diagnosis if done and self.run.outcome != "released" else None
        if found is not None and found.findings:
            plain.append(str(found))
            rich.append(found._repr_html_())
            stuck = [rank for rank, ending in self.run.endings.items() if ending is None]
            if stuck:
                notes = [
                    f"{phrases.ranks(stuck, True)} {phrases.verb(stuck, 'is', 'are')} still blocked: inspect with %ddp_status "
                    "and %ddp_diff; %ddp_release --rebuild releases the ranks and creates a new process group."
                ]
                plain.append(cells.text((), notes))
                rich.append(cells.html((), notes))
        return "\n\n".join(plain), "".join(rich)

    def _without_tracebacks(self, outputs: dict[int, cells.Output]) -> dict[int, cells.Output]:
        """Cut each rank's traceback from the end of its output, so that both are folded separately."""
        found: dict[int, cells.Output] = {}
        for rank, ending in self.run.endings.items():
            if ending is None or not ending.traceback:
                continue
            raised = cells.as_seen(ending.traceback)
            before, there, after = outputs[rank].text.rpartition(raised)
            if there:
                outputs[rank] = replace(outputs[rank], text=before + after)
            found[rank] = cells.Output(relative(raised), f"raised {ending.exception}")
        return found

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
