"""The agent of a host: an engine without torch that starts ranks there, and says what the host knows of them.

Its control channel answers looks, many a second: what the processes do, which have ended, what has changed in their files.
Its main thread does the rest. Each request has a number, and an answer that was lost is given again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from ddpnb.files import make_folder, private, write_private
from ddpnb.model import blackbox, samples
from ddpnb.processes import connections, descendants, gpus, process_samples, py_spy, source_text
from ddpnb.processes.engines.starter import CHILD, ENGINE_ARGS
from ddpnb.processes.environment import ReservedPort
from ddpnb.processes.locked_folder import LockedFolder, remove_path
from ddpnb.processes.process_samples import Sampler
from ddpnb.processes.remote.changes import LOG, OtherFiles, PagedFiles
from ddpnb.recorder import protocol, shared_files

_ASKED_S = 10.0  # without a look: is the launcher still there?
_ALONE_S = 300.0  # without a look: it is not
_KEPT = 64  # answers, for requests that are repeated
_LOG_TAIL = 4000  # characters


class Agent:
    """What the launcher asks of this host.

    Args:
        config: ``folders`` (of the world: in memory, for output) and ``token`` (the name of a file in each that the launcher
            has made), ``controller`` (address and port).
        own: the folder for the files of this agent.
    """

    def __init__(self, config: dict[str, Any], own: LockedFolder) -> None:
        self._memory, self._output = config["folders"]
        self._controller = config["controller"]
        self._own = own
        self._directory = config["directory"]
        self._connection = os.path.join(own.path, "connection.json")
        self._made: list[LockedFolder] = []
        self._shared: dict[str, bool] = {}  # whether the launcher's host has this very folder
        for folder in dict.fromkeys(config["folders"]):
            self._shared[folder] = os.path.exists(os.path.join(folder, config["token"]))
            if not self._shared[folder]:
                self._made.append(LockedFolder.at(folder))
        self._lock = threading.Lock()  # of what follows: starts and looks are on two threads
        self._ranks: dict[int, subprocess.Popen[bytes]] = {}
        self._starts: dict[int, int] = {}
        self._environments: dict[int, dict[str, str]] = {}
        self._paged = PagedFiles(self._memory)
        self._others = [OtherFiles(root) for root in self._roots()]
        self._sampler = Sampler()
        self._serial = 0
        self._looked_at = time.monotonic()
        self._ports: dict[int, ReservedPort] = {}
        self._answers: dict[int, Any] = {}
        threading.Thread(target=self._wait_alone, name="ddpnb alone", daemon=True).start()

    def _roots(self) -> list[str]:
        """The folders whose files are sent."""
        return [folder for folder, shared in self._shared.items() if not shared]

    # -- on the control channel

    def look(self, content: dict[str, Any]) -> dict[str, Any]:
        """The state of the host; ``have``: the serial number of the last look that has arrived."""
        received_ns = time.monotonic_ns()
        with self._lock:
            self._looked_at = time.monotonic()
            arrived = content["have"] == self._serial
            self._serial += 1
            pids = {rank: child.pid for rank, child in self._ranks.items()}
            seen = self._sampler.sample(pids.values()) if pids else {}
            ranks: dict[str, Any] = {}
            for rank, child in self._ranks.items():
                one = seen[child.pid]
                environment = self._environments[rank]
                device, visible = environment.get(protocol.DEVICE, ""), environment.get("CUDA_VISIBLE_DEVICES")
                ranks[str(rank)] = {
                    "pid": child.pid,
                    "start": self._starts[rank],
                    "exit": self._exit_of(rank),
                    "sample": [one.status, one.cpu_s, one.moved, one.descendants, one.memory],
                    "gpu": gpus.usage(device, visible),
                    "queued": process_samples.queued(child.pid),
                }
            return {
                "status": "ok",
                "serial": self._serial,
                "ranks": ranks,
                "paged": self._paged_changes(arrived),
                "others": [files.changes(arrived=arrived) for files in self._others],
                "roots": self._roots(),
                "clock": [received_ns, time.monotonic_ns()],
            }

    def _exit_of(self, rank: int) -> int | None:
        child = self._ranks[rank]
        before, status = child.returncode, child.poll()
        if before is None and status is not None:
            self._end_descendants(rank)
        return status

    def _end_descendants(self, rank: int, pids: Collection[int] = ()) -> None:
        living = [one.pid for one in self._ranks.values() if one.returncode is None and one.pid not in pids]
        descendants.end(pids, self._memory, rank, spare=living, seconds=descendants.SOON_S)

    def _paged_changes(self, arrived: bool) -> list[list[Any]]:
        return [] if self._shared[self._memory] else self._paged.changes(arrived=arrived)

    # -- on the main thread

    def answer(self, number: int, verb: str, given: list[Any]) -> Any:
        """Do what is asked; a request with a number that was answered gets the same answer again."""
        if number not in self._answers:
            verbs: dict[str, Callable[..., Any]] = {
                "start": self.start,
                "kill": self.kill,
                "stacks": py_spy.plain_stacks,
                "children": self.children,
                "connections": lambda ranks: self._by_rank(connections.of, ranks),
                "in_transit": lambda rows: connections.in_transit({self._ranks[int(r)].pid: rows[r] for r in rows}),
                "source": source_text.read_with_age,
                "put": self.put,
                "share": self.share,
                "missing": lambda paths: [path for path in paths if not os.path.exists(path)],
                "reserve": self.reserve,
                "free": self.free,
                "log": self.log,
                "end": self.end,
            }
            self._answers[number] = verbs[verb](*given)
            for old in list(self._answers)[:-_KEPT]:
                del self._answers[old]
        return self._answers[number]

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
        with self._lock:
            if not self._shared[self._memory]:
                for kind, size in (("box", blackbox.BOX_SIZE), ("samples", samples.FILE_SIZE)):
                    path = os.path.join(self._memory, f"rank{rank}.{kind}")
                    os.close(shared_files.create(path, size))
                    self._paged.renew(os.path.basename(path))
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
        try:
            with open(self._log_of(rank), errors="replace") as log:
                return log.read()[-_LOG_TAIL:]
        except OSError:
            return ""

    def kill(self, rank: int) -> None:
        """End the process of a rank, and all that it has started."""
        child = self._ranks.get(rank)
        if child is None:
            return
        self._end_descendants(rank, [child.pid] if child.poll() is None else ())
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(descendants.SOON_S)

    def children(self, rank: int, seconds: float) -> list[dict[str, Any]]:
        """See ``py_spy.plain_children``."""
        pid = self._ranks[rank].pid
        below = Sampler().sample([pid])[pid].descendants
        return py_spy.plain_children(below, time.monotonic() + seconds)

    def _by_rank(self, ask: Callable[[list[int]], dict[int, Any]], ranks: list[int]) -> dict[str, Any]:
        found = ask([self._ranks[rank].pid for rank in ranks])
        return {str(rank): found[pid] for rank in ranks if (pid := self._ranks[rank].pid) in found}

    def put(self, path: str, text: str) -> None:
        """Write a file that the ranks read: the lines of a cell."""
        if not self._shared[self._output]:
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
            if folder not in self._shared:
                self._shared[folder] = False
                self._others.append(OtherFiles(folder, logs=True))

    def reserve(self) -> int:
        """A port that nothing else on this host will choose."""
        port = ReservedPort()
        self._ports[port.port] = port
        return port.port

    def free(self, port: int) -> None:
        """Give up a port."""
        if port in self._ports:
            self._ports.pop(port).release()

    def end(self) -> None:
        """End everything on this host; this process ends a moment later, when the answer has been sent."""
        self._clear()
        timer = threading.Timer(0.3, os._exit, (0,))
        timer.start()

    def _clear(self) -> None:
        for rank in list(self._ranks):
            self.kill(rank)
        descendants.end((), self._memory, seconds=descendants.SOON_S)
        for folder in (*self._made, self._own):
            folder.remove()

    # -- alone

    def _wait_alone(self) -> None:
        while True:
            time.sleep(1)
            silent = time.monotonic() - self._looked_at
            if silent > _ALONE_S or (silent > _ASKED_S and not self._controller_lives()):
                break
        try:
            self._clear()
        finally:  # ranks and their children end with this process, whatever could not be removed
            os._exit(1)

    def _controller_lives(self) -> bool:
        """False only if its host says that nothing listens there any more: a link that is cut may come back."""
        try:
            socket.create_connection(tuple(self._controller), timeout=5).close()
        except ConnectionRefusedError:
            return False
        except OSError:
            pass
        return True


current: Agent | None = None


def begin() -> None:
    """Read the order of the launcher, and make the folders, before the engine starts.

    Raises:
        OSError: a folder cannot be made on this host.
    """
    global current
    import tempfile

    config = {"directory": os.getcwd(), **json.load(sys.stdin)}
    if config["cpus"]:  # not only those of the engine that has started this process
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, config["cpus"])
    own = LockedFolder(tempfile.gettempdir())
    os.chdir(own.path)
    connection = os.path.join(own.path, "connection.json")
    write_private(connection, json.dumps(config["connection"]))
    try:
        current = Agent(config, own)
    except BaseException:
        remove_path(own.path)
        raise
    profile = os.path.join(own.path, "profile")
    make_folder(profile)
    sys.argv += [f"--IPEngine.url_file={connection}", f"--profile-dir={profile}"]


def attach() -> None:
    """Called in the engine's kernel once it exists: from now on looks are answered."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    kernel = shell.kernel

    async def serve(stream: Any, ident: Any, parent: Any) -> None:
        assert current is not None
        try:
            content = current.look(parent["content"])
        except Exception as error:
            content = {"status": "error", "error": f"{type(error).__name__}: {error}"}
        kernel.session.send(stream, protocol.REPLY, content=content, parent=parent, ident=ident)

    kernel.control_handlers[protocol.REQUEST] = serve
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def answer(number: int, verb: str, given: list[Any]) -> Any:
    """What the launcher calls: see ``Agent.answer``."""
    assert current is not None
    return current.answer(number, verb, given)
