"""The other hosts of a job that ``ddpnb run -- COMMAND`` watches: their agents connect to this process.

Connections are encrypted (CURVE). Only who has the keys of the job can connect; its processes get them in their environment.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import zmq
from zmq.utils import z85

from ddpnb.errors import WorldError
from ddpnb.files import write_private
from ddpnb.inject import other_host
from ddpnb.processes.environment import working_directory
from ddpnb.processes.remote import addresses
from ddpnb.processes.remote.jobs.channel import JobChannel, JobMirror
from ddpnb.processes.remote.jobs.exchange import Exchange
from ddpnb.processes.remote.jobs.messages import WAY
from ddpnb.processes.remote.link import LATE_S, SILENT_S, Link
from ddpnb.recorder import protocol

_END_S = 5.0  # for an agent to end what runs on its host
_SHORT_S = 0.4  # for one that a scheduler may have ended
_LONGEST = 80  # characters of the name of a host


class JobHosts:
    """The agents of a job, and the links to them.

    Args:
        job: the folder of the job here.

    Raises:
        WorldError: connections cannot be encrypted or accepted on this machine.
    """

    def __init__(self, job: str) -> None:
        self.links: dict[str, Link] = {}  # name of a host -> to its agent
        self._names: dict[str, str] = {}  # place -> name of the host
        self._agents: dict[str, bytes] = {}  # name of a host -> its agent
        self._job = job
        self._left: set[str] = set()  # hosts whose ranks have all ended: their agents too
        self._closed = False
        self._relays = ThreadPoolExecutor(4, "ddpnb relay")
        if not zmq.has("curve"):
            raise WorldError("this pyzmq cannot encrypt connections (CURVE).")
        context: zmq.Context[Any] = zmq.Context()
        try:
            agents = self._listen(context)
        except (zmq.ZMQError, OSError) as error:
            context.destroy(linger=0)
            raise WorldError(f"this machine accepts no connections: {error}.") from None
        self._exchange = Exchange(context, agents, self._take, {self._allowed: self._allow})

    def _listen(self, context: Any) -> Any:
        server, secret = zmq.curve_keypair()
        public, own = zmq.curve_keypair()
        self._public = public
        self._allowed = context.socket(zmq.REP)  # asked by the library for each connection
        self._allowed.bind("inproc://zeromq.zap.01")
        agents = context.socket(zmq.ROUTER)
        agents.curve_server = True
        agents.curve_secretkey, agents.curve_publickey = secret, server
        agents.zap_domain = b"ddpnb"
        agents.router_handover = agents.router_mandatory = 1
        agents.linger = 0
        agents.tcp_keepalive = 1
        port = int(agents.bind_to_random_port("tcp://*"))
        self._way = {
            "addresses": [one for one in addresses.own_addresses() if not one.startswith("127.")],
            "port": port,
            "server": server.decode(),
            "public": public.decode(),
            "secret": own.decode(),
            "boot": protocol.boot(),
            "python": sys.executable,
            "directory": working_directory(),
        }
        return agents

    @property
    def variables(self) -> dict[str, str]:
        """What the processes of the job need in their environment."""
        return {protocol.HOSTS: other_host.packed(self._way)}

    def name_of(self, place: str) -> str:
        """The name of the host with this place (``protocol.place``); empty if no agent of it has connected."""
        return self._names.get(place, "")

    # -- messages

    def send(self, agent: bytes, message: Mapping[str, Any]) -> Future[dict[str, Any]]:
        """See ``Exchange.send``."""
        return self._exchange.send([agent], message)

    def _allow(self) -> None:
        """Answer the library whether a connection is accepted (the ZAP protocol, ZeroMQ RFC 27)."""
        version, number, *_, mechanism, key = self._allowed.recv_multipart()
        accepted = mechanism == b"CURVE" and z85.encode(key) == self._public
        status, text = (b"200", b"OK") if accepted else (b"400", b"refused")
        self._allowed.send_multipart([version, number, status, text, b"", b""])

    def _take(self, sender: list[bytes], message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "clock":
            self._exchange.post(sender, {"kind": "clock", "now_ns": time.monotonic_ns()})
        elif kind == "hello":  # an agent may reach several addresses of this host
            self._exchange.post(sender, {"kind": "welcome"})
        elif kind == "here":
            self._connect(sender[0], str(message["host"])[:_LONGEST], str(message["place"]))
        elif kind == "bye":
            self._left |= {name for name, agent in self._agents.items() if agent == sender[0]}
        elif kind == "relay":
            self._relays.submit(self._relay, sender, message)

    def _connect(self, agent: bytes, host: str, place: str) -> None:
        """An agent has come; one that was there before on its host is not heard any more."""
        names = (host if number == 1 else f"{host} ({number})" for number in itertools.count(1))
        name = self._names.get(place) or next(name for name in names if name not in self.links)
        before = self.links.get(name)
        self.links[name] = Link(name, JobChannel(self, agent, name), JobMirror(self._job))
        self._names[place], self._agents[name] = name, agent
        self._left.discard(name)
        if before is not None:
            threading.Thread(target=before.close, daemon=True).start()
        path = os.path.join(self._job, WAY)
        if not os.path.exists(path):
            here = {"pid": os.getpid(), "started": protocol.started(os.getpid())}
            write_private(path, json.dumps(self._way | here))

    def _relay(self, sender: list[bytes], message: dict[str, Any]) -> None:
        """Pass on what another process of this host asks of an agent, or say what the last look has shown."""
        verb, link = message["verb"], self.links.get(message["host"])
        over = message["host"] in self._left  # the last look has shown how all ranks there ended
        try:
            if verb == "hosts":
                content: Any = self._names
            elif link is None or (verb == "look" and not (over or link.look_anew(LATE_S))):
                return
            else:
                content = link.described() if verb == "look" else link.request(verb, *message["given"])
        except WorldError as error:
            self._exchange.post(sender, {"kind": "answer", "id": message["id"], "error": str(error)})
        else:
            self._exchange.post(sender, {"kind": "answer", "id": message["id"], "content": content})

    # -- end

    def leave(self) -> None:
        """The ranks of one start are not used any more; the agents stay."""

    def forget(self) -> None:
        """Let the agents remove the files of the ranks, before something else ends these agents."""
        self._of_all(_END_S, "forget")

    def _of_all(self, seconds: float, verb: str, *given: Any) -> list[str]:
        """Ask all agents for something; the hosts that do not answer, though their agents have not ended."""
        links = [link for name, link in list(self.links.items()) if name not in self._left]
        if not links:
            return []
        with ThreadPoolExecutor(len(links)) as pool:
            done = list(pool.map(lambda link: _done(link, seconds, verb, *given), links))
        silent = [link.host for link, well in zip(links, done, strict=True) if not well]
        return [name for name in silent if self._agents[name] not in self._exchange.lost]

    def close(self, *, end: bool) -> None:
        """Let the agents go; safe to call twice.

        Args:
            end: everything that the job runs on their hosts too.
        """
        if self._closed:
            return
        self._closed = True
        for host in self._of_all(_END_S if end else _SHORT_S, "end", end):
            if end:
                print(
                    f"ddpnb: host {host} does not answer: processes of this job may still run there.", file=sys.stderr
                )
        self._relays.shutdown(wait=False, cancel_futures=True)
        self._exchange.close()
        for link in self.links.values():
            link.close()


def _done(link: Link, seconds: float, verb: str, *given: Any) -> bool:
    """Ask an agent for something; whether it has done it."""
    try:
        link.request(verb, *given, timeout=seconds if link.silent_s < SILENT_S else _SHORT_S)
    except (WorldError, RuntimeError):
        return False
    return True
