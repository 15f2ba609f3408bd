"""The agent of a World on a host: starts the ranks there, and ends with them when the launcher has gone."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from ddpnb.ranks import descendants
from ddpnb.ranks.engines.cluster import ENGINE_ARGS
from ddpnb.ranks.environment import ReservedPort
from ddpnb.ranks.exit_reasons import last_part
from ddpnb.ranks.interpreter import CHILD
from ddpnb.ranks.locked_folder import LockedFolder
from ddpnb.ranks.remote.agent import Agent, RankProcess
from ddpnb.ranks.remote.changes import LOG, Files
from ddpnb.recorder.files import shared_files
from ddpnb.recording import blackbox, protocol, samples
from ddpnb.recording.files import make_folder, private, write_private

_LOG_TAIL = 4000  # bytes


class WorldAgent(Agent):
    """What the launcher of a World asks of this host.

    Args:
        order: ``folders`` (of the world: in memory, for output), ``token`` (the name of a file in each that the launcher has
            made), ``connection`` (what an engine needs to connect to its controller), ``directory``, ``cpus``.

    Raises:
        OSError: a folder cannot be made on this host.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        super().__init__()
        self._verbs |= {
            "start": self.start,
            "kill": self.kill,
            "put": self.put,
            "share": self.share,
            "missing": lambda paths: [path for path in paths if not os.path.exists(path)],
            "reserve": self.reserve,
            "free": self.free,
            "log": self.log,
            "end": self.end,
        }
        if order["cpus"]:  # not only those of the engine that has started this process
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, order["cpus"])
        self._memory, self._output = order["folders"]
        self._directory = order["directory"]
        self._sent: dict[str, Files] = {}  # folders that the launcher's host has not
        self._lock = threading.Lock()  # of what follows: starts and looks are on several threads
        self._starting = threading.Lock()  # one process after the other
        self._ranks: dict[int, subprocess.Popen[bytes]] = {}
        self._starts: dict[int, int] = {}
        self._environments: dict[int, dict[str, str]] = {}
        self._ports: dict[int, ReservedPort] = {}
        self._own = LockedFolder(tempfile.gettempdir())
        self._made: list[LockedFolder] = []
        try:
            for folder in dict.fromkeys(order["folders"]):
                if not os.path.exists(os.path.join(folder, order["token"])):
                    self._made.append(LockedFolder.at(folder))
                    self._sent[folder] = Files(folder)
            write_private(self._connection, json.dumps(order["connection"]))
            make_folder(os.path.join(self._own.path, "profile"))
        except BaseException:
            self.close()
            raise

    @property
    def _connection(self) -> str:
        return os.path.join(self._own.path, "connection.json")

    # -- looks

    def look(self, content: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            return super().look(content)

    def _processes(self) -> Iterator[RankProcess]:
        for rank, child in self._ranks.items():
            environment = self._environments[rank]
            device, visible = environment.get(protocol.DEVICE, ""), environment.get("CUDA_VISIBLE_DEVICES")
            yield RankProcess(child.pid, partial(self._exit_of, rank), device, visible)

    def _exit_of(self, rank: int) -> int | None:
        child = self._ranks[rank]
        before, status = child.returncode, child.poll()
        if before is None and status is not None:
            self._end_descendants(rank)
        return status

    def _end_descendants(self, rank: int, pids: Collection[int] = ()) -> None:
        living = [child.pid for child in self._ranks.values() if child.returncode is None and child.pid not in pids]
        descendants.end(pids, self._memory, rank, spare=living, seconds=descendants.SOON_S)

    def _files(self, *, arrived: bool) -> dict[str, Any]:
        folders = {folder: files.changes(arrived=arrived) for folder, files in self._sent.items()}
        return {"starts": {str(rank): count for rank, count in self._starts.items()}, "folders": folders}

    # -- requests

    def _sockets(self, start: str) -> str:  # noqa: ARG002
        return self._memory

    def start(
        self, rank: int, environment: dict[str, str], defaults: dict[str, str], directory: str, count: int
    ) -> int:
        """Start the process of a rank, for the ``count``-th time; returns its process ID.

        Args:
            rank: the rank.
            environment: its own variables; the others are those of the user's engine on this host.
            defaults: variables for which those of the user's engine stand, where it has them.
            directory: in which it works, where there is one of this name.
            count: how often a process of this rank has been started, with this one.
        """
        with self._starting, self._lock:
            if self._memory in self._sent:
                for kind, size in (("box", blackbox.BOX_SIZE), ("samples", samples.FILE_SIZE)):
                    path = os.path.join(self._memory, f"rank{rank}.{kind}")
                    os.close(shared_files.create(path, size))
                    self._sent[self._memory].renew(os.path.basename(path))
            own = {name: value for name, value in os.environ.items() if name not in (protocol.AGENT, protocol.PARENT)}
            whole = {**defaults, **own, **environment, protocol.PARENT: str(os.getpid())}
            with open(self._log_of(rank), "ab", opener=private) as log:
                self._ranks[rank] = subprocess.Popen(
                    [*CHILD, "engine", self._own.path, *ENGINE_ARGS,
                     f"--profile-dir={os.path.join(self._own.path, 'profile')}",
                     f"--IPEngine.url_file={self._connection}"],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=whole, start_new_session=True,
                    cwd=directory if os.path.isdir(directory) else self._directory,
                )  # fmt: skip
            self._starts[rank], self._environments[rank] = count, whole
            return self._ranks[rank].pid

    def _log_of(self, rank: int) -> str:
        return os.path.join(self._own.path, f"engine{rank}.txt")

    def log(self, rank: int) -> str:
        """The end of what the engine of a rank has written, but for the output of runs."""
        return last_part(self._log_of(rank), _LOG_TAIL)

    def kill(self, rank: int) -> None:
        """End the process of a rank, and all that it has started."""
        child = self._ranks.get(rank)
        if child is None:
            return
        with self._starting:
            self._end_descendants(rank, [child.pid] if child.poll() is None else ())
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(descendants.SOON_S)

    def put(self, path: str, text: str) -> None:
        """Write a file that the ranks read: the lines of a cell."""
        if self._output in self._sent:
            write_private(path, text)

    def share(self, folder: str, token: str) -> None:
        """Make a folder for the output of ranks, which is sent. Not if it is the launcher's own folder."""
        if os.path.exists(os.path.join(folder, token)):
            return
        make_folder(folder)
        if any(os.path.commonpath([folder, made.path]) == made.path for made in self._made):
            return  # it is sent with the folder of the world
        for name in os.listdir(folder):  # as the launcher has done: the log of an earlier run is not that of this one
            if LOG.fullmatch(name):
                os.replace(os.path.join(folder, name), os.path.join(folder, f"{name}.earlier"))
        with self._lock:
            self._sent.setdefault(folder, Files(folder, logs=True))

    def reserve(self) -> int:
        """A port that nothing else on this host will choose."""
        port = ReservedPort()
        self._ports[port.port] = port
        return port.port

    def free(self, port: int) -> None:
        """Give up a port."""
        if port in self._ports:
            self._ports.pop(port).release()

    # -- end

    def end(self, _everything: bool = True) -> None:
        """End everything on this host; this process ends when the answer has been sent."""
        for rank in list(self._ranks):
            self.kill(rank)
        descendants.end((), self._memory, seconds=descendants.SOON_S)
        for folder in (*self._made, self._own):
            folder.remove()

    @property
    def some_live(self) -> bool:
        return False  # they end with this process

    def settle(self) -> bool:
        return self._alone

    def close(self) -> None:
        self.end()
