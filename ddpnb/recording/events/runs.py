"""The checkpoints of a script, its end, and what ddpnb records about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddpnb.recording.events.base import Event, Facts, event, record, rest
from ddpnb.recording.names import given_name


@event("checkpoint")
class Checkpoint(Event):
    """The script has called ``ddpnb.checkpoint(name)``.

    ``number``: counted on this rank in this run, from 1; ``visit``: how often the rank has passed this line, from 1.
    """

    name: str = ""
    number: int = 0
    visit: int = 1


@event("seed set")
class SeedSet(Event):
    """The script has called ``torch.manual_seed``."""

    seed: int = 0


@event("process ends")
class ProcessEnds(Event):
    """The process ends itself by ``os._exit``, ``os.abort`` or a signal."""

    signal: int = 0


@event("exit")
class ScriptEnded(Event):
    how: str = ""
    code: int = 0


@event("wait for an old call")
class LateWait(Event):
    """The record of the call was used again, so many calls came after it."""


@record
class Caller(Facts):
    """A frame of the user's code."""

    file: str = ""
    line: int = 0
    function: str = ""


@event("fence")
class FenceMismatch(Event):
    """``call``: its number; ``peers``: the ranks that announced a different one.

    ``path``: the user's frames down to the call, outermost first: a script may catch what the fence raises, and continue.
    """

    call: int = -1
    peers: tuple[int, ...] = ()
    seq: int = 0
    fence: str = ""
    path: tuple[Caller, ...] = ()


@record
class Elsewhere(Facts):
    """A rank that is elsewhere in the program, at the call of the same number.

    ``operation``: what it called, where that is another one. ``place``: where, in the outermost function in which the two
    differ; ``here``: where this rank is in it. ``iterations``: how often a loop around that has begun again since the last
    call, here and there. ``exchanged``: the number of an earlier call, at which each was where now the other is.
    """

    rank: int = -1
    operation: str = ""
    here: Caller = Caller()
    place: Caller = Caller()
    iterations: tuple[int, ...] = ()
    exchanged: int = 0


@event("ranks part")
class RanksPart(Event):
    """A call is held since other ranks are elsewhere in the program. ``call``: its number."""

    call: int = -1
    seq: int = 0
    peers: tuple[Elsewhere, ...] = ()


@event("held")
class Held(Event):
    """A thread is held at its site: before the line, at the entry of the function, or by an exception that nothing handles.

    It is open while the thread is held; one record serves all stops of a run. ``kind``: line, or exception. ``why``: the hold
    that stopped it, or the step; ``thread``: its name, if it is not the main thread. Before a call (``kind`` call, ``call``: its
    number) it says why where that is a value that differs between ranks. ``native_id``: of the thread, as in the stacks.
    """

    kind: str = "line"
    why: str = ""
    thread: str = ""
    call: int = -1
    native_id: int = 0


@event("not the same")
class NotTheSame(Event):
    """A value of which the program says that it is the same on all ranks (``ddpnb.same``) is not. ``call``: where that was seen."""

    call: int = -1
    what: str = ""


@event("changed in flight")
class ChangedInFlight(Event):
    """A tensor of an asynchronous call was changed in place before the program waited for the call, which it made at ``site``.

    Once for each place of a call. ``waited``: where the wait is.
    """

    operation: str = ""
    waited: Caller = Caller()


@event("no fence")
class FenceOff(Event):
    """There was no room for the shared file of a group."""

    ranks: tuple[int, ...] = ()
    error: str = ""


@event("fault")
class FaultTriggered(Event):
    fault: str = ""
    call: Mapping[str, Any] = rest()


@event("fault missed")
class FaultMissed(Event):
    """A fault was never triggered in a run."""

    fault: str = ""
    why: str = ""


@event("hold missed")
class HoldMissed(Event):
    """A hold at a line stopped nobody in a run, or one could not be evaluated; ``why``: empty if nothing matched its conditions."""

    hold: str = ""
    why: str = ""


@event("hooks detached")
class HooksDetached(Event):
    """A hook of ddpnb failed and was removed."""

    error: str = ""


@event("lines not recorded")
class LinesNotRecorded(Event):
    """``whole``: lines are recorded for the run as a whole, but not for its windows."""

    why: str = ""
    whole: bool = False


@event("exception handled")
class ExceptionHandled(Event):
    """A line of a handler, a ``finally`` or an ``__exit__`` of the user's ran for the first time in the run.

    ``exception``: the type of what was being handled there; ``raised``: the innermost line of the user's that raised it.
    """

    exception: str = ""
    raised: Caller = Caller()


@event("thread failed")
class ThreadFailed(Event):
    """An exception ended a thread; the site is the innermost line of the user's that raised it."""

    thread: str = ""
    exception: str = ""


MOST_COMPILATIONS = 128  # that a rank records in a run: its box has room for 512 events


@record
class GraphBreak(Facts):
    """A line of the user's at which a compiled graph ended, and why, in torch's words."""

    file: str = ""
    line: int = 0
    why: str = ""


@event("compilation")
class Compilation(Event):
    """``torch.compile`` compiled a function, at whose first line the event is, or the rest of it after a graph break.

    ``compile_id``: torch's number of the function and of its compilation, from "0/0". ``library``: its name, if it is not the
    user's; then the event is at the user's line that called it. ``part``: what of it, if not the function itself ("lazy
    backward"). ``reason``: the guard because of which an earlier graph was not used. ``hits``, ``misses``: of the
    caches of compiled graphs. ``given_up``: the exception by which it ended; the function runs without.
    """

    compile_id: str = ""
    library: str = ""
    part: str = ""
    reason: str = ""
    hits: int = 0
    misses: int = 0
    breaks: tuple[GraphBreak, ...] = ()
    given_up: str = ""

    @property
    def number(self) -> int:
        """How often the function was compiled, with this time."""
        last = self.compile_id.rpartition("/")[2].partition("_")[0]
        return int(last) + 1 if last.isdecimal() and len(last) < 10 else 1

    @property
    def again(self) -> bool:
        return self.number > 1


@event("door detached")
class DoorDetached(Event):
    """The door failed: the collectives of this rank after it were not recorded."""

    error: str = ""


@event("function not found")
class FunctionNotFound(Event):
    """This version of torch does not have what a hook watches."""

    function: str = ""


@event("torch differs")
class TorchDiffers(Event):
    """What cannot be recorded with this version of torch; ``newer``: than all that ddpnb was tested with."""

    version: str = ""
    newer: bool = False
    without: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        torch, lost = f"torch {given_name(self.version)}", "; ".join(map(given_name, self.without))
        newer = f"{torch} is newer than all that ddpnb was tested with. Not known with it: {lost}."
        return newer if self.newer else f"Not known with {torch}: {lost}."
