"""The agents on other hosts, and the links to them: they connect to this process.

Connections are encrypted (CURVE). Only who has the keys of this job or World can connect; agents get them from this process.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import zmq
from zmq.utils import z85

from ddpnb.errors import WorldError
from ddpnb.ranks.remote.exchange import Exchange
from ddpnb.ranks.remote.link import SILENT_S, Link

_SHORT_S = 0.4  # for an agent that a scheduler may have ended, or whose host may be dead
_LONGEST = 80  # characters of the name of a host


class Agents:
    """Accepts the connections of agents, and keeps a link to each.

    Args:
        address: at which this process listens; ``*``: all.

    Raises:
        WorldError: connections cannot be encrypted or accepted on this machine.
    """

    #: seconds for an agent to end what runs on its host
    end_s = 5.0
    #: said of a host that does not answer in the end
    left_there = ""

    def __init__(self, address: str) -> None:
        self.links: dict[str, Link] = {}  # name of a host -> to its agent
        self._names: dict[str, str] = {}  # place -> name of the host
        self._agents: dict[str, bytes] = {}  # name of a host -> its agent
        self._left: set[str] = set()  # hosts whose agents have ended by themselves
        self._closed = False
        if not zmq.has("curve"):
            raise WorldError("this pyzmq cannot encrypt connections (CURVE).")
        context: zmq.Context[Any] = zmq.Context()
        try:
            agents = self._listen(context, address)
        except (zmq.ZMQError, OSError) as error:
            context.destroy(linger=0)
            raise WorldError(f"this machine accepts no connections: {error}.") from None
        self._exchange = Exchange(context, agents, self._take, {self._allowed: self._allow})

    def _listen(self, context: Any, address: str) -> Any:
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
        #: what an agent needs to connect, beside the addresses
        self._way: dict[str, Any] = {
            "port": int(agents.bind_to_random_port(f"tcp://{address}")),
            "server": server.decode(),
            "public": public.decode(),
            "secret": own.decode(),
        }
        return agents

    def _allow(self) -> None:
        """Answer the library whether a connection is accepted (the ZAP protocol, ZeroMQ RFC 27)."""
        version, number, *_, mechanism, key = self._allowed.recv_multipart()
        accepted = mechanism == b"CURVE" and z85.encode(key) == self._public
        status, text = (b"200", b"OK") if accepted else (b"400", b"refused")
        self._allowed.send_multipart([version, number, status, text, b"", b""])

    def _take(self, sender: list[bytes], message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "clock":
            self._exchange.post(sender, {"kind": "answer", "id": message["id"], "now_ns": time.monotonic_ns()})
        elif kind == "hello":  # an agent may reach several addresses of this host
            self._exchange.post(sender, {"kind": "welcome"})
        elif kind == "here":
            self._connect(sender[0], str(message["host"])[:_LONGEST], str(message["place"]))
        elif kind == "bye":
            self._left |= {name for name, agent in self._agents.items() if agent == sender[0]}

    def _connect(self, agent: bytes, host: str, place: str) -> None:
        """An agent has come; one that was there before on its host is not heard any more."""
        names = (host if number == 1 else f"{host} ({number})" for number in itertools.count(1))
        name = self._names.get(place) or next(name for name in names if name not in self.links)
        before = self.links.get(name)
        self.links[name] = self._link(name, partial(self._exchange.send, [agent]), before)
        self._names[place], self._agents[name] = name, agent
        self._left.discard(name)
        if before is not None:
            threading.Thread(target=before.close, daemon=True).start()

    def _link(self, name: str, send: Any, before: Link | None) -> Link:
        """A link to the agent of a host, in place of that to an earlier one."""
        raise NotImplementedError

    # -- end

    def _of_all(self, seconds: float, verb: str, *given: Any) -> list[str]:
        """Ask all agents for something; the hosts that do not answer, though their agents have not ended."""
        links = [link for name, link in list(self.links.items()) if name not in self._left and not link.ended]
        if not links:
            return []
        with ThreadPoolExecutor(len(links)) as pool:
            done = list(pool.map(lambda link: _done(link, seconds, verb, *given), links))
        silent = [link.host for link, well in zip(links, done, strict=True) if not well]
        return [name for name in silent if self._agents[name] not in self._exchange.lost]

    def close(self, *, end: bool) -> None:
        """Let the agents go; safe to call twice.

        Args:
            end: everything that runs on their hosts too.
        """
        if self._closed:
            return
        self._closed = True
        for host in self._of_all(self.end_s if end else _SHORT_S, "end", end):
            if end:
                print(f"ddpnb: host {host} does not answer: {self.left_there}.", file=sys.stderr)
        self._exchange.close()
        for link in self.links.values():
            link.close()


def _done(link: Link, seconds: float, verb: str, *given: Any) -> bool:
    """Ask an agent for something; whether it has done it."""
    try:
        link.request(verb, *given, timeout=seconds if link.silent_s < SILENT_S else _SHORT_S)
    except WorldError:
        return False
    return True
