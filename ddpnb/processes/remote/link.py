"""The launcher's end of the link to the agent of a host."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from ddpnb.errors import WorldError
from ddpnb.processes.process_samples import GONE, ProcessSample
from ddpnb.processes.rank_processes import Answer
from ddpnb.processes.remote.host_clock import HostClock
from ddpnb.processes.remote.mirror import Mirror

LATE_S = 1.0  # without a look: nothing is concluded from what is known of the host
SILENT_S = 3.0  # errors say that it is silent
_TICK_S, _SHARE = 0.04, 4  # between two looks, and how many times longer than a look it is at least
_LOOK_S = 1.0  # for one look
_AGAIN_S = 2.0  # then a request that was not answered is sent again
STILL_RUNS = "Is the network between the hosts up, and does the engine that you started there still run?"
_CLOCKS_S = 5.0  # for the first comparison of the clocks


class Channel(Protocol):
    """Carries messages to the agent of a host. Those that are lost on the way are sent again by ``Link``."""

    def look(self, have: int, timeout: float) -> dict[str, Any] | None:
        """The agent's answer to a look (``Agent.look``); None: there was none in time.

        Args:
            have: the serial number of the last look that has arrived.
            timeout: seconds.

        Raises:
            Exception: there will be none any more.
        """
        ...

    def request(self, number: int, verb: str, given: list[Any]) -> Answer:
        """Ask the agent for something (``Agent.answer``)."""
        ...


class Link:
    """Looks at a host again and again, and passes requests to its agent.

    Args:
        host: its name.
        channel: to its agent.
        mirror: takes the files of its ranks.
    """

    def __init__(self, host: str, channel: Channel, mirror: Mirror) -> None:
        self.host = host
        self.mirror = mirror
        self.heard_at = time.monotonic()
        self.trouble = ""  # why the files of its ranks cannot be kept here
        self.ended = ""  # how the agent ended, in words
        self._channel = channel
        self._serial = 0
        self._known: dict[int, dict[str, Any]] = {}
        self.clock = HostClock()
        self.clocks: dict[int, int] = {}  # what the ranks of the host add to its clock
        #: called while the agent is silent: finds out whether it has ended
        self.ask_after: Callable[[], None] = lambda: None
        #: called by the thread that looks, after each look
        self.after_look: Callable[[], None] = lambda: None
        self._looks = 0
        self._numbers = itertools.count(1)
        self._stopping = threading.Event()
        self._wanted = threading.Event()  # somebody waits for the next look
        self._looked = threading.Condition()
        self._thread = threading.Thread(target=self._follow, name=f"ddpnb host {host}", daemon=True)
        self._thread.start()

    # -- looks

    def _follow(self) -> None:
        took = 0.0
        while not self.closed:
            self._wanted.wait(max(_TICK_S, _SHARE * took))
            self._wanted.clear()
            began = time.monotonic()
            self._look()
            took = min(time.monotonic() - began, 0.1)

    def _look(self) -> None:
        sent = time.monotonic_ns()
        try:
            answer = self._channel.look(self._serial, _LOOK_S)
        except Exception:  # the channel is closed
            self._stopping.set()
            return
        if answer is None or answer.get("status") != "ok":
            return
        arrived = time.monotonic_ns()
        try:
            self.mirror.take(answer)
            known = {int(rank): _checked(one) for rank, one in answer["ranks"].items()}
            serial, (received, answered) = int(answer["serial"]), map(int, answer["clock"])
        except (ValueError, KeyError, TypeError, IndexError) as error:
            self.trouble = f"its agent answers what is not understood: {error}"
            return
        except OSError as error:
            self.trouble = f"the files of its ranks cannot be written here: {error.strerror}"
            return
        with self._looked:
            self.trouble = ""
            self._known, self._serial, self.heard_at = known, serial, arrived * 1e-9
            self._looks += 1
            self.clock.add(sent, received, answered, arrived)
            self._looked.notify_all()
        self.after_look()

    @property
    def next_look(self) -> int:
        """The number of the first look that begins after this moment: one may be under way."""
        return self._looks + 2

    def has_looked(self, wanted: int) -> bool:
        """Whether the look with this number is over, or none is to come."""
        return self._looks >= wanted or self.closed

    def look_anew(self, timeout: float) -> bool:
        """Wait for a look that begins after this moment; whether there was one in time."""
        deadline = time.monotonic() + timeout
        with self._looked:
            wanted = self.next_look
            while not self.has_looked(wanted) and time.monotonic() < deadline:
                self._wanted.set()
                self._looked.wait(_TICK_S)
            return self.has_looked(wanted)

    @property
    def silent_s(self) -> float:
        """For how long nothing has been heard of the host."""
        return time.monotonic() - self.heard_at

    @property
    def ahead_ns(self) -> int:
        """What must be added to the monotonic clock of the host, which gives that of this one.

        Raises:
            WorldError: the host does not answer.
        """
        with self._looked:
            self._looked.wait_for(lambda: self.clock.known or self._stopping.is_set(), _CLOCKS_S)
        if not self.clock.known:
            raise _no_answer(self.host)
        return self.clock.ahead_ns

    def state(self, rank: int, start: int) -> dict[str, Any] | None:
        """What the last look has shown of a rank's process; None if it has not shown this start of it."""
        known = self._known.get(rank)
        return known if known is not None and known["start"] == start else None

    def described(self) -> dict[str, Any]:
        """What the last look has shown of all processes, as a look shows it, without their files."""
        ranks = {
            str(key): {**one, "sample": dataclasses.astuple(one["sample"])} for key, one in list(self._known.items())
        }
        now = time.monotonic_ns()
        return {"status": "ok", "serial": 0, "clock": [now, now], "ranks": ranks}

    # -- requests

    def request(self, verb: str, *given: Any, timeout: float = 10.0) -> Any:
        """Ask the agent for something; a request that is not answered is sent again, and done once.

        Raises:
            WorldError: no answer within ``timeout`` seconds, or the agent refused.
        """
        number, deadline = next(self._numbers), time.monotonic() + timeout
        pending: list[Any] = []
        while time.monotonic() < deadline:
            pending.append(self._channel.request(number, verb, list(given)))
            again = min(deadline, time.monotonic() + _AGAIN_S * len(pending))
            while time.monotonic() < again:
                if self.silent_s > LATE_S:
                    self.ask_after()
                if self.ended:
                    raise WorldError(f"the agent on host {self.host} {self.ended}.", "world.restart() starts it again.")
                for reply in pending:
                    if reply.ready():
                        if not reply.successful():
                            raise WorldError(f"host {self.host} refused ({verb}): {str(reply.exception())[:500]}.")
                        return reply.get()
                time.sleep(0.002)
        raise _no_answer(self.host)

    @property
    def closed(self) -> bool:
        return self._stopping.is_set()

    def stop_looking(self) -> None:
        """Look no more."""
        self._stopping.set()
        self._wanted.set()

    def close(self) -> None:
        """Look no more, and wait until the last look is over."""
        self.stop_looking()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)


def _no_answer(host: str) -> WorldError:
    return WorldError(f"host {host} does not answer.", STILL_RUNS)


def _checked(one: dict[str, Any]) -> dict[str, Any]:
    status, cpu_s, moved, below, memory = one["sample"]
    exit_status = one["exit"]
    return {
        "pid": int(one["pid"]),
        "start": int(one["start"]),
        "exit": None if exit_status is None else int(exit_status),
        "sample": ProcessSample(
            str(status)[:4] if status != GONE else GONE,
            float(cpu_s),
            float(moved),
            tuple((int(pid), str(letter)[:1]) for pid, letter in below),
            int(memory),
        ),
        "gpu": {str(name): value for name, value in dict(one["gpu"]).items() if isinstance(value, (int, float))},
        "queued": None if one["queued"] is None else (int(one["queued"][0]), int(one["queued"][1])),
    }
