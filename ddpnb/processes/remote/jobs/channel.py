"""The channel to the agent of another host of a job, and the files that come through it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from ddpnb.files import make_folder
from ddpnb.processes.rank_processes import Answer
from ddpnb.processes.remote.jobs.messages import of_start
from ddpnb.processes.remote.link import Channel, Link
from ddpnb.processes.remote.mirror import Mirror

_OF_START = "of start"  # a request about the ranks of one start: its name and the verb come first


class Sender(Protocol):
    """Sends messages to agents: ``JobHosts``."""

    def send(self, agent: bytes, message: Mapping[str, Any]) -> Future[dict[str, Any]]: ...


class JobChannel(Channel):
    """To one agent.

    Args:
        sender: that it has connected to.
        agent: its identity there.
        host: its name.
    """

    def __init__(self, sender: Sender, agent: bytes, host: str) -> None:
        self._sender, self._agent, self._host = sender, agent, host

    def look(self, have: int, timeout: float) -> dict[str, Any] | None:
        return shown(self._sender.send(self._agent, {"kind": "look", "have": have}), timeout)

    def request(self, number: int, verb: str, given: list[Any]) -> Answer:
        start, verb, given = (given[0], given[1], given[2:]) if verb == _OF_START else ("", verb, given)
        message = {"kind": "request", "number": number, "start": start, "verb": verb, "given": given}
        return JobReply(self._sender.send(self._agent, message))


def shown(asked: Future[dict[str, Any]], timeout: float) -> dict[str, Any] | None:
    """What a look has shown; None: there is no answer in time."""
    try:
        return asked.result(timeout).get("content")
    except TimeoutError:
        asked.cancel()
        return None


class LinkOfStart:
    """The link to a host, for requests about the ranks of one start of a process group.

    Args:
        link: to the host.
        start: the name of its folder.
    """

    def __init__(self, link: Link, start: str) -> None:
        self.link = link
        self._start = start

    def request(self, verb: str, *given: Any, timeout: float = 10.0) -> Any:
        """See ``Link.request``."""
        return self.link.request(_OF_START, self._start, verb, *given, timeout=timeout)


class JobMirror(Mirror):
    """The files of the starts of process groups.

    Args:
        job: the folder of the job.
    """

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self._job = job
        self._mirrors: dict[str, Mirror] = {}

    def take(self, look: dict[str, Any]) -> None:
        for name, files in look["starts"].items():
            if not of_start(name):
                raise ValueError(f"no start of a process group: {name!r:.60}")
            folder = os.path.join(self._job, name)
            make_folder(folder)
            mirror = self._mirrors.setdefault(name, Mirror(folder))
            mirror.take({"ranks": {}, "paged": files["paged"], "roots": [folder], "others": [files["others"]]})


class JobReply(Answer):
    """The answer to a request, once it has come.

    Args:
        asked: the message with it.
    """

    def __init__(self, asked: Future[dict[str, Any]]) -> None:
        self._asked = asked

    def ready(self) -> bool:
        return self._asked.done()

    def wait(self, timeout: float | None = None) -> None:
        with contextlib.suppress(TimeoutError):
            self._asked.result(timeout)

    def successful(self) -> bool:
        return self.exception() is None

    def exception(self) -> Any:
        return self._asked.result(0).get("error")

    def get(self, timeout: float | None = None) -> Any:
        return self._asked.result(timeout)["content"]

    def load(self, timeout: float | None = None) -> Any:
        return self.get(timeout)
