"""Two simulated hosts, each with engines of a user, who has connected them to one controller on the launcher."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ipyparallel

from tests.host_clocks import HostClocks
from tests.simulated_hosts import DEADLINE_S, WITH_ALL, Network, end, wait_until

_CONTROLLER_ARGS = [
    "--IPController.use_threads=True",
    "--IPController.db_class=NoDB",
    "--HeartMonitor.period=500",  # an engine is registered after its first beat
    "--HeartMonitor.max_heartmonitor_misses=1000000",  # engines behind a link that is cut are not forgotten
]


class TwoHosts(Network):
    """The hosts, a controller on the launcher, and engines.

    Args:
        folder: an empty one.
        engines: of the user, on each host.
        encrypted: whether the controller uses CURVE.
        resolved: see ``Network``.
        clocks: whether Python's clocks on each host can be set (``tests.host_clocks``).
    """

    def __init__(
        self, folder: Path, *, engines: int = 1, encrypted: bool = True, resolved: bool = True, clocks: bool = False
    ) -> None:
        super().__init__(folder, resolved=resolved)
        self.clocks = {name: HostClocks(self.shared / f"clocks-{name}") for name in self.names} if clocks else {}
        self._profile = folder / "profile"
        self._logs = folder / "logs"
        self._logs.mkdir()
        self.engines: dict[str, list[subprocess.Popen]] = {name: [] for name in self.names}
        self._nodes: dict[int, str] = {}
        try:
            self._start_controller(encrypted=encrypted)
            for name in self.names:
                for _ in range(engines):
                    self.start_engine(name)
            self.client = ipyparallel.Client(self.connection_file("client"), timeout=DEADLINE_S)
            self._stack.callback(self.client.close, linger=0)
            wait_until("all engines register", lambda: len(self.client.ids) == engines * len(self.names))
            assert [len(self.ids(name)) for name in self.names] == [engines] * len(self.names)
        except BaseException as error:
            error.add_note(self.logs)
            self.close()
            raise

    def connection_file(self, kind: str) -> str:
        """That for a ``client`` or an ``engine``; the latter lies where all hosts see it."""
        return str(self._profile / "security" / f"ipcontroller-{kind}.json")

    def _start_controller(self, *, encrypted: bool) -> None:
        command = [
            *WITH_ALL, sys.executable, "-m", "ipyparallel.controller", f"--profile-dir={self._profile}",
            f"--ip={self.address}", f"--location={self.address}", f"--IPController.enable_curve={encrypted}",
            *_CONTROLLER_ARGS,
        ]  # fmt: skip
        with open(self._logs / "controller.log", "wb") as log:
            controller = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self._stack.callback(end, controller)
        files = [self.connection_file(kind) for kind in ("client", "engine")]
        wait_until("the controller starts", lambda: all(map(_is_written, files)) or controller.poll() is not None)
        assert controller.poll() is None, (self._logs / "controller.log").read_text()
        (self.shared / "engine.json").write_bytes(Path(self.connection_file("engine")).read_bytes())

    def start_engine(self, name: str, python: str = sys.executable, **more) -> subprocess.Popen:
        """Start an engine of the user on a host."""
        number = len(self.engines[name])
        variables = {"IPYTHONDIR": "/tmp/ipython", **(self.clocks[name].variables if self.clocks else {})}
        with open(self._logs / f"{name}-{number}.log", "wb") as log:
            engine = self.popen(
                name, python, "-m", "ipyparallel.engine", f"--file={self.shared}/engine.json",
                "--IPEngine.timeout=60", "--IPEngine.max_heartbeat_misses=0",
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env={**variables, **more.pop("env", {})}, **more,
            )  # fmt: skip
        self._stack.callback(end, engine)
        self.engines[name].append(engine)
        return engine

    def ids(self, name: str) -> list[int]:
        """The engines on a host; waits for an answer of those that are new."""
        new = [engine for engine in self.client.ids if engine not in self._nodes]
        if new:
            names = self.client[new].apply_async(os.uname).get_dict(DEADLINE_S)
            self._nodes |= {engine: uname.nodename for engine, uname in names.items()}
        return [engine for engine, node in sorted(self._nodes.items()) if node == name]

    @property
    def logs(self) -> str:
        """What controller and engines have written: for the message of a test that fails."""
        return "\n".join(f"-- {path.name}\n{path.read_text(errors='replace')}" for path in self._logs.iterdir())


def _is_written(file: str) -> bool:
    """Whether the whole of a connection file is there: the controller opens it before it writes."""
    try:
        json.loads(Path(file).read_bytes())
    except (OSError, ValueError):
        return False
    return True


@contextlib.contextmanager
def two_hosts(folder: Path, **options) -> Iterator[TwoHosts]:
    """Two hosts; ``options`` are those of ``TwoHosts``."""
    hosts = TwoHosts(folder, **options)
    try:
        yield hosts
    finally:
        hosts.close()
