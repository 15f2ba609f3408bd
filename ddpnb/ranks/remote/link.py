"""The launcher's end of the link to the agent of a host."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any

from ddpnb.errors import WorldError
from ddpnb.ranks.process_samples import GONE, ProcessSample
from ddpnb.ranks.remote.host_clock import HostClock
from ddpnb.ranks.remote.mirror import Mirror

LATE_S = 1.0  # without a look: nothing is concluded from what is known of the host
SILENT_S = 3.0  # errors say that it is silent
_TICK_S, _SHARE = 0.04, 4  # between two looks, and how many times longer than a look it is at least
_LOOK_S = 1.0  # for one look
_AGAIN_S = 2.0  # then a request that was not answered is sent again
STILL_RUNS = "Is the network between the hosts up, and does the engine that you started there still run?"
_CLOCKS_S = 5.0  # for the first comparison of the clocks


class Link:
    """Looks at a host again and again, and passes requests to its agent.

    Args:
        host: its name.
        send: sends the agent a message; its result is the answer: ``content``, or ``error``, or that it was ``lost``. Raises
            RuntimeError if there will be none any more.
        mirror: takes the files of its ranks.
        after_look: called by the thread that looks, after each look.
        ask_after: called while the agent is silent: finds out whether it has ended. None: nobody can tell.
    """

    def __init__(
        self,
        host: str,
        send: Callable[[Mapping[str, Any]], Future[dict[str, Any]]],
        mirror: Mirror,
        after_look: Callable[[Link], None] | None = None,
        ask_after: Callable[[], None] | None = None,
    ) -> None:
        self.host = host
        self.mirror = mirror
        self.heard_at = time.monotonic()
        self.trouble = ""  # why the files of its ranks cannot be kept here
        self.ended = ""  # how the agent ended, in words
        self.clock = HostClock()
        self.clocks: dict[int, int] = {}  # what the ranks of the host add to its clock
        self.shown: dict[str, Any] = {}  # what the last look has shown of all processes, as it came
        self._send, self._after_look, self._ask_after = send, after_look, ask_after
        self._serial = 0
        self._known: dict[int, dict[str, Any]] = {}
        self._looks = 0
        self._numbers = itertools.count(secrets.randbits(48))  # another process may ask the same agent
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
        asked: Future[dict[str, Any]] = Future()
        try:
            asked = self._send({"kind": "look", "have": self._serial})
            answer = asked.result(_LOOK_S).get("content")
        except TimeoutError:
            asked.cancel()
            return
        except (RuntimeError, CancelledError):  # there will be no answers any more
            self._stopping.set()
            return
        if not isinstance(answer, dict) or answer.get("status") != "ok":
            return
        arrived = time.monotonic_ns()
        try:
            self.mirror.take(answer)
            known = {int(pid): _checked(one) for pid, one in answer["ranks"].items()}
            serial, (received, answered) = int(answer["serial"]), map(int, answer["clock"])
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            self.trouble = f"its agent answers what is not understood: {error}"
            return
        except OSError as error:
            self.trouble = f"the files of its ranks cannot be written here: {error.strerror}"
            return
        with self._looked:
            self.trouble = ""
            self._known, self._serial, self.heard_at, self.shown = known, serial, arrived * 1e-9, answer["ranks"]
            self._looks += 1
            self.clock.add(sent, received, answered, arrived)
            self._looked.notify_all()
        if self._after_look is not None:
            self._after_look(self)

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

    def state(self, pid: int) -> dict[str, Any] | None:
        """What the last look has shown of the process of a rank; None if it has not shown it."""
        return self._known.get(pid)

    # -- requests

    def request(self, verb: str, *given: Any, timeout: float = 10.0) -> Any:
        """Ask the agent for something; a request that is not answered is sent again, and done once.

        Raises:
            WorldError: no answer within ``timeout`` seconds, or the agent refused.
        """
        message = {"kind": "request", "number": next(self._numbers), "verb": verb, "given": given}
        deadline = time.monotonic() + timeout
        pending: list[Future[dict[str, Any]]] = []
        sent = 0
        while time.monotonic() < deadline:
            try:
                pending.append(self._send(message))
            except RuntimeError:
                break
            sent += 1
            again = min(deadline, time.monotonic() + _AGAIN_S * sent)
            while time.monotonic() < again:
                if self.silent_s > LATE_S and self._ask_after is not None:
                    self._ask_after()
                if self.ended:
                    raise WorldError(f"the agent on host {self.host} {self.ended}.", "world.restart() starts it again.")
                for asked in [asked for asked in pending if asked.done()]:
                    pending.remove(asked)
                    answer = {"lost": True} if asked.cancelled() else asked.result()
                    if "error" in answer:
                        raise WorldError(f"host {self.host} refused ({verb}): {str(answer['error'])[:500]}.")
                    if "lost" not in answer:
                        return answer.get("content")
                    if self._ask_after is None:
                        raise _no_answer(self.host)
                time.sleep(0.002)
        for asked in pending:
            asked.cancel()
        raise _no_answer(self.host)

    def post(self, verb: str, *given: Any) -> Future[dict[str, Any]]:
        """The same once, without waiting for the answer: see ``send``."""
        return self._send({"kind": "request", "number": next(self._numbers), "verb": verb, "given": given})

    @property
    def closed(self) -> bool:
        return self._stopping.is_set()

    def close(self) -> None:
        """Look no more, and wait until the last look is over."""
        self._stopping.set()
        self._wanted.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)


def _no_answer(host: str) -> WorldError:
    return WorldError(f"host {host} does not answer.", STILL_RUNS)


def _checked(one: dict[str, Any]) -> dict[str, Any]:
    status, cpu_s, moved, below, memory, *_ = one["sample"]  # what answers cost is in its box
    exit_status = one["exit"]
    return {
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
