"""The agent of a host: a plain process without torch that acts there for a launcher on another host.

It connects to the launcher, encrypted with keys of the job or World (CURVE). Then it answers looks, many a second: what the
processes of ranks do, which have ended, what has changed in their files; and requests. Each request has a number, and one that
is repeated is not done again. ``world_agent`` starts ranks, ``job_agent`` finds those that something else has started.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from ddpnb.ranks import connections, gpus, process_samples, py_spy, sockets, source_text
from ddpnb.ranks.process_samples import Sampler
from ddpnb.ranks.remote.exchange import Launcher
from ddpnb.recorder.process import parent_death
from ddpnb.recording import protocol
from ddpnb.recording.files import write_private

_TICK_S = 0.2
_ASKED_S = 10.0  # without a message: is the launcher still there?
_ALONE_S = 300.0  # without a message: it is not
_LAST_S = 3.0  # after SIGTERM, for the launcher to learn how ranks have ended
_KEPT = 64  # answers, for requests that are repeated


class RankProcess(NamedTuple):
    """The process of a rank on this host."""

    pid: int
    exit_status: Callable[[], int | None]
    device: str
    visible_devices: str | None


class Agent(ABC):
    """What the launcher asks of this host."""

    def __init__(self) -> None:
        self._sampler = Sampler()
        self._serial = 0
        self._workers = ThreadPoolExecutor(4, "ddpnb request")
        self._answers: dict[int, Future[Any]] = {}
        self._alone = False
        self._verbs: dict[str, Callable[..., Any]] = {
            "ask": self._ask,
            "stacks": py_spy.plain_stacks,
            "children": _children,
            "connections": connections.of,
            "in_transit": lambda rows: connections.in_transit({int(pid): rows[pid] for pid in rows}),
            "source": source_text.read_with_age,
        }

    def look(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The state of the host; ``have``: the serial number of the last look that has arrived."""
        received_ns = time.monotonic_ns()
        arrived = content["have"] == self._serial
        self._serial += 1
        self._alone = False
        return {
            "status": "ok",
            "serial": self._serial,
            "ranks": self._states(),
            **self._files(arrived=arrived),
            "clock": [received_ns, time.monotonic_ns()],
        }

    def _states(self) -> dict[str, Any]:
        processes = list(self._processes())
        seen = self._sampler.sample([process.pid for process in processes]) if processes else {}
        return {
            str(process.pid): {
                "exit": process.exit_status(),
                "sample": dataclasses.astuple(seen[process.pid]),
                "gpu": gpus.usage(process.device, process.visible_devices),
                "queued": process_samples.queued(process.pid),
            }
            for process in processes
        }

    def begin(self, content: Mapping[str, Any]) -> Future[Any]:
        """Begin to do what is asked; a request whose number is known is not done again."""
        number = content["number"]
        if number not in self._answers:
            self._answers[number] = self._workers.submit(self._answer, content["verb"], content["given"])
            for old in list(self._answers)[:-_KEPT]:
                del self._answers[old]
        return self._answers[number]

    def _answer(self, verb: str, given: list[Any]) -> Any:
        return self._verbs[verb](*given)

    def _ask(self, start: str, requests: Mapping[str, Any], seconds: float) -> dict[int, dict[str, Any]]:
        """Ask ranks that are here; the answers that came in time."""
        folder = self._sockets(start)
        return sockets.ask_each(folder, {int(rank): request for rank, request in requests.items()}, seconds)

    @abstractmethod
    def _sockets(self, start: str) -> str:
        """The folder with the sockets of the ranks of this start of a process group; a World has but one.

        Raises:
            ValueError: this is no start.
        """

    @abstractmethod
    def _processes(self) -> Iterable[RankProcess]:
        """The processes of the ranks here."""

    @abstractmethod
    def _files(self, *, arrived: bool) -> dict[str, Any]:
        """What has changed in their files: ``folders`` (``changes.Files``), ``starts`` (see ``Mirror``).

        Args:
            arrived: whether the last look has.
        """

    @property
    @abstractmethod
    def some_live(self) -> bool:
        """Whether a process of this host lives for whose sake the agent does."""

    def alone(self) -> None:
        """The launcher is gone."""
        self._alone = True

    @abstractmethod
    def settle(self) -> bool:
        """Do what is to be done after each message; whether there is nothing more to do here."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing here that must not stay."""


def _children(pid: int, seconds: float) -> list[dict[str, Any]]:
    """See ``py_spy.plain_children``."""
    return py_spy.plain_children(Sampler().sample([pid])[pid].descendants, time.monotonic() + seconds)


def serve(launcher: Launcher, agent: Agent) -> None:
    """Answer the launcher until it ends this agent, or there is nothing more to do."""
    last_heard, ended, terminated = time.monotonic(), threading.Event(), [0.0]
    signal.signal(signal.SIGTERM, lambda *_: terminated.__setitem__(0, time.monotonic()))

    def answer(message: Mapping[str, Any], future: Future[Any]) -> None:
        error = future.exception()
        launcher.answer(message, **({"error": _said(error)} if error else {"content": future.result()}))
        if message["verb"] == "end":
            ended.set()

    while True:
        looks: list[Mapping[str, Any]] = []
        messages = launcher.received(_TICK_S)
        now = time.monotonic()
        for message in messages:
            last_heard = now
            if message["kind"] == "look":
                looks.append(message)
            else:
                agent.begin(message).add_done_callback(partial(answer, message))
        if looks:  # of many that have come after a link was cut, only the last one is waited for
            try:
                content = agent.look(looks[-1])
            except Exception as error:
                content = {"status": "error", "error": _said(error)}
            launcher.answer(looks[-1], content=content)
        ends = ended.is_set()
        if ends or (now - last_heard > _ASKED_S and (now - last_heard > _ALONE_S or launcher.is_gone())):
            agent.alone()
        if agent.settle() or (ends and not agent.some_live) or (terminated[0] and now - terminated[0] > _LAST_S):
            break
    launcher.say("bye")


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def main() -> None:
    """Read the order of the process that has started this one, and say on standard output whether the agent is ready.

    That of a job is forked: it is no child of the rank that has started it. That of a World ends with what has started it.
    """
    order = json.loads(sys.stdin.buffer.read())
    if order["kind"] == "world":
        parent_death.bind_to_parent()
    elif os.fork():
        os._exit(0)
    os.chdir("/")
    signal.alarm(int(order["seconds"]))  # what has started it waits no longer
    agent: Agent | None = None
    try:
        launcher = Launcher(order)
        ready = {"pid": os.getpid(), "started": protocol.started(os.getpid()), "ahead_ns": launcher.ahead_ns}
        agent = _made(order)
        if order["kind"] == "job":
            write_private(os.path.join(order["folder"], "agent.json"), json.dumps(ready))
        launcher.say("here", host=order.get("host", protocol.host()), place=protocol.place())
    except Exception as error:
        if agent is not None:
            agent.close()
        print(json.dumps({"why": str(error)}), flush=True)
        os._exit(1)
    try:
        signal.alarm(0)
        print(json.dumps(ready), flush=True)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        serve(launcher, agent)
    finally:
        try:
            time.sleep(_TICK_S)  # the last answer is on its way
            agent.close()
        finally:  # ranks and their children end with the agent of a World, whatever could not be removed
            os._exit(0)


def _made(order: Mapping[str, Any]) -> Agent:
    if order["kind"] == "world":
        from ddpnb.ranks.remote.world_agent import WorldAgent

        return WorldAgent(order)
    from ddpnb.ranks.remote.job_agent import JobAgent

    return JobAgent(order["folder"], order["job"])
