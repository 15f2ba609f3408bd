"""A small client of the Debug Adapter Protocol: what VS Code sends to debugpy, over its socket."""

from __future__ import annotations

import json
import socket
import time
from contextlib import contextmanager

_DEADLINE_S = 240


class DapClient:
    """One session with the debugpy of one rank."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_DEADLINE_S)
        self._input = self._socket.makefile("rb")
        self._seq = 0
        self._events = []

    def attach(self, file, *lines, when="", **configuration):
        """As an IDE does: capabilities, attach with an entry of launch.json, breakpoints, go."""
        self.ask("initialize", adapterID="debugpy", linesStartAt1=True, columnsStartAt1=True, pathFormat="path")
        attach = self.send("attach", **(configuration or {"justMyCode": True, "subProcess": False}))
        self.event("initialized")
        found = self.breakpoints(file, *lines, when=when)
        self.ask("configurationDone")
        self._answer(attach)
        return found

    def breakpoints(self, file, *lines, when=""):
        asked = [{"line": line, "condition": when} if when else {"line": line} for line in lines]
        body = self.ask("setBreakpoints", source={"path": str(file)}, breakpoints=asked)
        return [one["verified"] for one in body["breakpoints"]]

    def stopped(self):
        """Wait until a thread is stopped: its number, and why."""
        body = self.event("stopped")
        return body["threadId"], body["reason"]

    def stack(self, thread):
        return self.ask("stackTrace", threadId=thread)["stackFrames"]

    def variables(self, frame):
        scopes = self.ask("scopes", frameId=frame["id"])["scopes"]
        found = self.ask("variables", variablesReference=scopes[0]["variablesReference"])["variables"]
        return {one["name"]: one["value"] for one in found}

    def send(self, command, **arguments):
        self._seq += 1
        data = json.dumps({"seq": self._seq, "type": "request", "command": command, "arguments": arguments}).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        return self._seq

    def ask(self, command, **arguments):
        return self._answer(self.send(command, **arguments))

    def event(self, name):
        return self._until(lambda one: one["type"] == "event" and one["event"] == name).get("body", {})

    def _answer(self, seq):
        found = self._until(lambda one: one["type"] == "response" and one["request_seq"] == seq)
        assert found["success"], found
        return found.get("body") or {}

    def _until(self, fits):
        deadline = time.monotonic() + _DEADLINE_S
        for at, one in enumerate(self._events):
            if fits(one):
                return self._events.pop(at)
        while time.monotonic() < deadline:
            one = self._read()
            if fits(one):
                return one
            self._events.append(one)
        raise AssertionError(self._events)

    def _read(self):
        length = 0
        while line := self._input.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the debugger has closed the connection"
        return json.loads(self._input.read(length))

    def close(self):
        """Break the connection, as an IDE that is killed."""
        self._input.close()
        self._socket.close()


@contextmanager
def clients(ports):
    """A client for each rank."""
    made = {rank: DapClient(port) for rank, port in ports.items()}
    try:
        yield made
    finally:
        for one in made.values():
            one.close()
