"""A thread that polls the ranks from outside and passes changes to panels.

Polling costs the ranks nothing: it reads their black boxes in shared memory and the state of their processes
from the host. Only ranks that do not progress are asked, once, for their stacks, since the black box does not
show a wait inside the threads of torch.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ddpnb.recording.blackbox import News, Status
from ddpnb.recording.calls import Call
from ddpnb.recording.marks import Mark
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.stacks import Stack
from ddpnb.world.ranks import Ranks
from ddpnb.world.run import Run

LOOK_S = 0.06  # between two looks at the boxes
_HOST_S = 0.5  # between two looks at the processes; also how old a picture may get in which nothing is new
# While no box has changed for some time: nothing is new, but what the processes use. What the user does is seen immediately.
_CALM_S, _CALM_LOOK_S, _CALM_HOST_S = 3.0, (0.25, 0.5), (3.0, 10.0)  # the longer, the fewer
_SLOWEST_S = 1.0  # between two pictures
_CREDIT_S = 0.15  # of pictures that may be made at once, before the share counts
_SHARE = 80  # pictures are made for no more than one part in so many of the time: the ranks may need every core
_TRIES = 50  # looks that may fail one after the other
_STILL_S = 0.4  # without a change in any box: then the ranks may be asked
_BEAT_S = 2.0
_UNSEEN_S = 0.25  # between two looks while no page shows the ranks: at the outcome of the run alone
_AGAIN_S = 2.0  # between two requests to ranks whose progress no box shows
_HISTORY = 16  # calls of each rank in a picture: enough to say where it stands


@dataclass(frozen=True, slots=True)
class Picture:
    """The state at one moment. ``calls``, ``marks``: new ones since the last picture; ``fresh``: a new run has begun; ``lost``:
    no page showed the ranks, and calls were overwritten before they were read.
    """

    recording: Recording
    run: Run | None
    calls: Mapping[int, tuple[Call, ...]]
    fresh: bool
    lost: bool = False
    marks: Mapping[int, tuple[Mark, ...]] = field(default_factory=dict[int, tuple[Mark, ...]])


class _Look:
    """What is kept between two polls of one run."""

    def __init__(self, ranks: Ranks, *, fresh: bool) -> None:
        self._fresh = fresh  # another run has begun, and nothing of it was shown yet
        self.run = ranks.last_run
        self.members = ranks.members
        self._size = ranks.size
        self._observer = ranks.observer()
        self._news: dict[int, News] = {}
        self._statuses: dict[int, Status] = {}
        self._before: dict[int, Status] = {}  # at the look before
        self._shown_still: set[int] = set()  # ranks that stand, and were shown so
        self._at_host: tuple[dict[int, Status], dict[int, Status]] = ({}, {})  # at the last two looks at the processes
        self._changed = self._looked = 0.0
        self._outcome = ""  # that was known at the last picture
        self._shown: tuple[dict[int, Status], list[int], bool] | None = None
        self._stacks: dict[int, tuple[Status, tuple[Stack, ...]]] = {}  # and the status of the rank when it was asked
        self._recorded, self._asked = ranks.processes.recorded, 0.0

    def new(self, *, due: bool, allowed: bool, hurried: bool) -> Picture | None:
        """A picture, if anything has changed.

        Args:
            due: the time for the next regular picture has come.
            allowed: it has not, but a rank that stopped may be shown immediately.
            hurried: the user did something to the ranks.
        """
        now = time.monotonic()
        statuses = self._observer.statuses()
        if statuses != self._statuses:
            self._statuses, self._changed = statuses, now
        running = [rank for rank in statuses if self._observer.ending(rank) is None]
        still = {rank for rank in running if statuses[rank] == self._before.get(rank)}
        self._before, self._shown_still = statuses, self._shown_still & still
        stands = allowed and any(self._observer.stands(rank) for rank in still - self._shown_still)
        state = statuses, running, self.run is not None and self.run.done
        host = now - self._looked >= self._pause(_HOST_S, *_CALM_HOST_S)
        if not (hurried or stands or (due and (host or state != self._shown))):
            return None
        self._shown_still = still
        if host:
            self._observer.look()
            self._looked, self._at_host = now, (self._at_host[1], statuses)
        self._shown, self._outcome = state, self.run.outcome if self.run is not None else ""
        recording = self._record(running, ask=now - self._changed >= _STILL_S)
        ranks = {rank: self._known(one) for rank, one in recording.ranks.items()}
        fresh, self._fresh = self._fresh, False
        calls, marks, lost = self._calls()
        return Picture(replace(recording, ranks=ranks), self.run, calls, fresh, lost, marks)

    @property
    def pause_s(self) -> float:
        """Until the next look at the boxes."""
        return self._pause(LOOK_S, *_CALM_LOOK_S)

    def _pause(self, usual: float, least: float, most: float) -> float:
        """``usual``, until no box has changed for some time; from then on up to ``most``, the longer nothing is new."""
        still_s = time.monotonic() - self._changed
        return usual if still_s <= _CALM_S else min(most, least * max(1.0, still_s / 15))

    def has_outcome(self, ranks: Ranks) -> bool:
        """Whether a run began, ended or lost a rank since the last picture, or a rank left it; this reads no box."""
        done = self.run is not None and self.run.done
        outcome = self.run.outcome if self.run is not None else ""
        if not self.is_of(ranks) or self._shown is None or done != self._shown[2] or outcome != self._outcome:
            return True
        return done and any(self._observer.ending(rank) is not None for rank in self._shown[1])

    def is_of(self, ranks: Ranks) -> bool:
        """Whether these are still the same run and processes."""
        return ranks.last_run is self.run and ranks.members == self.members

    def _known(self, one: RankRecord) -> RankRecord:
        """A rank with its stacks; without the old record if it was restarted since."""
        if self.run is not None and not self.members[one.rank][1]:
            return RankRecord(one.rank, one.pid, device=one.device)
        judged = self.run.recording if self.run is not None and self.run.done else None
        known = judged.ranks.get(one.rank, one) if judged is not None else one
        one = replace(one, samples=known.samples)  # only the run's own observer reads them
        if one.process.activity == "idle" and self._statuses[one.rank] != self._at_host[0].get(one.rank):
            # It did something in the time of which its process is said to be idle: what was held a moment ago is not blocked.
            one = replace(one, process=replace(one.process, activity="computing", idle_s=0.0))
        if one.ending is not None:
            return one
        return replace(one, stacks=self._stacks[one.rank][1] if self._still(one.rank) else known.stacks)

    def _still(self, rank: int) -> bool:
        return rank in self._stacks and self._stacks[rank][0] == self._statuses[rank]

    def _record(self, running: Sequence[int], *, ask: bool) -> Recording:
        """A Recording of now. ``ask``: request the stacks of ranks that stopped and have not been asked at this place."""
        again = not self._recorded and time.monotonic() - self._asked >= _AGAIN_S
        ask = ask and self.run is not None and (again or not all(self._still(rank) for rank in running))
        taken = self._observer.record(ask=ask, with_locals=False, history=_HISTORY, follow=False)
        if ask:
            self._asked = time.monotonic()
            self._stacks = {rank: (self._statuses[rank], taken.ranks[rank].stacks) for rank in running}
        return taken

    def _calls(self) -> tuple[dict[int, tuple[Call, ...]], dict[int, tuple[Mark, ...]], bool]:
        found: dict[int, tuple[Call, ...]] = {}
        marked: dict[int, tuple[Mark, ...]] = {}
        missing = 0
        for rank in range(self._size):
            reader = self._observer.reader(rank)
            begun = self.run is None or self._observer.status(rank).run == self.run.number
            if reader is not None and begun:  # else the box still holds the run before
                calls, marked[rank], lost = self._news.setdefault(rank, News(reader)).look()
                missing += lost
                if calls:
                    found[rank] = calls
        return found, marked, missing > 0


class Live:
    """Polls the ranks until their World is closed or ``stop()`` is called.

    Args:
        ranks: the ranks of a World.
        show: called with each picture, on the polling thread.
        beat: called regularly while polling.
        unseen: whether pages have shown the ranks and none does now; then only the outcome of runs is followed.
    """

    def __init__(
        self, ranks: Ranks, show: Callable[[Picture], None], beat: Callable[[], None], unseen: Callable[[], bool]
    ) -> None:
        self._ranks = ranks
        self._show = show
        self._beat = beat
        self._unseen = unseen
        self._stopping = threading.Event()
        self._look_now = threading.Event()
        self._again = threading.Event()
        self._thread = self._polling()

    def _polling(self) -> threading.Thread:
        return threading.Thread(target=self._follow, name="ddpnb panel", daemon=True)

    @property
    def ended(self) -> bool:
        """Whether nothing is polled any more."""
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop polling."""
        self._stopping.set()
        self._look_now.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(2)

    def revive(self) -> None:
        """Poll again if polling has ended, though the ranks can be reached."""
        if self._thread.is_alive() or self._stopping.is_set() or self._ranks.closed:
            return
        self._again.set()
        self._thread = self._polling()
        self._thread.start()

    def restart(self) -> None:
        """Begin again: the next picture is fresh, with all calls that are still recorded."""
        self._again.set()
        self._look_now.set()

    def hurry(self) -> None:
        """The user did something to the ranks: poll immediately."""
        self._look_now.set()

    def _follow(self) -> None:
        look: _Look | None = None
        beaten = next_picture = 0.0
        credit, counted, failed, paused = _CREDIT_S, time.monotonic(), 0, False
        while not self._stopping.is_set() and not self._ranks.closed:
            now, hurried = time.monotonic(), self._look_now.is_set()
            self._look_now.clear()
            unseen = not hurried and self._unseen()
            if self._again.is_set():
                self._again.clear()
                look = None
            try:
                if look is None or not look.is_of(self._ranks):
                    look = _Look(self._ranks, fresh=look is None or self._ranks.last_run is not look.run)
                began = time.thread_time()
                credit, counted = min(_CREDIT_S, credit + (now - counted) / _SHARE), now
                picture, paused = None, paused or unseen
                if not unseen or look.has_outcome(self._ranks):
                    picture = look.new(due=now >= next_picture, allowed=credit > 0, hurried=hurried)
                if picture is not None:
                    self._show(replace(picture, lost=picture.lost and paused))
                    paused = unseen
                    spent = time.thread_time() - began
                    credit -= spent
                    next_picture = now + min(_SLOWEST_S, _SHARE * spent)
                failed = 0
            except Exception:  # the world may be closing, a rank be replaced
                failed += 1
                if failed > _TRIES:
                    return  # the page gets no beat any more, and says that it is not updated
            if now - beaten >= _BEAT_S:
                beaten = now
                with contextlib.suppress(Exception):  # the kernel may be ending; the next one may come through
                    self._beat()
            pause_s = LOOK_S if look is None else look.pause_s
            self._look_now.wait(_UNSEEN_S if unseen else pause_s)
        self._beat()
