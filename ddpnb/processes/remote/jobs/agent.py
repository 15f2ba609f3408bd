"""The agent of a host with ranks of a job that ``ddpnb run`` watches from another host: a plain process without torch.

The first rank on the host starts it (``inject.other_host``). It connects to the launcher, encrypted with keys of the job
(CURVE), and makes the folder of the job on this host. Then it answers looks and requests, as ``remote.agent.Agent`` does for a
World, until the launcher ends it, or all ranks here have ended. It ends no rank unless it is asked to.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import zmq

from ddpnb.files import write_private
from ddpnb.inject import other_host
from ddpnb.processes import descendants, gpus
from ddpnb.processes.jobs.kept_connections import KeptConnections
from ddpnb.processes.locked_folder import LockedFolder
from ddpnb.processes.process_samples import Sampler, queued
from ddpnb.processes.remote.jobs.launcher import Launcher
from ddpnb.processes.remote.jobs.messages import of_start
from ddpnb.processes.remote.jobs.start import Start
from ddpnb.recorder import protocol

_TICK_S = 0.2
_ASKED_S = 10.0  # without a message: is the launcher still there?
_ALONE_S = 300.0  # without a message: it is not
_LAST_S = 3.0  # after SIGTERM, for the launcher to learn how ranks have ended
_KEPT = 64  # answers, for requests that are repeated


class JobAgent:
    """What the launcher asks of this host.

    Args:
        folder: of the job on this host.
        job: the folder of the job on the launcher's host, which all its processes have in their environment.
    """

    def __init__(self, folder: LockedFolder, job: str) -> None:
        self._folder, self._job = folder, job
        self._kept = KeptConnections(folder.path)
        self._starts: dict[str, Start] = {}
        self._sampler = Sampler()
        self._serial = 0
        self._workers = ThreadPoolExecutor(4, "ddpnb request")
        self._answers: dict[int, Future[Any]] = {}
        self.removed = False  # the files of the ranks: their endings are known
        self._shown = 0  # looks since then that have arrived
        self._alone = False

    def look(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The state of the host: see ``Agent.look``; ranks are named by their process IDs."""
        received_ns = time.monotonic_ns()
        arrived = content["have"] == self._serial
        self._serial += 1
        self._alone = False
        if not self.removed:
            for entry in os.scandir(self._folder.path):
                if of_start(entry.name) and entry.name not in self._starts:
                    self._starts[entry.name] = Start(entry.path)
        elif arrived and not self.some_live:
            self._shown += 1
        starts = {} if self.removed else {name: one.files(arrived=arrived) for name, one in self._starts.items()}
        return {
            "status": "ok",
            "serial": self._serial,
            "ranks": self._states(),
            "starts": starts,
            "clock": [received_ns, time.monotonic_ns()],
        }

    def _states(self) -> dict[str, Any]:
        known = [(start.processes, rank) for start in self._starts.values() for rank in start.ranks]
        seen = self._sampler.sample([processes.pid(rank) for processes, rank in known]) if known else {}
        states: dict[str, Any] = {}
        for processes, rank in known:
            pid = processes.pid(rank)
            one = seen[pid]
            states[str(pid)] = {
                "pid": pid,
                "start": 0,
                "exit": processes.exit_status(rank),
                "sample": [one.status, one.cpu_s, one.moved, one.descendants, one.memory],
                "gpu": gpus.usage(processes.device(rank), processes.visible_devices(rank)),
                "queued": queued(pid),
            }
        return states

    def begin(self, content: Mapping[str, Any]) -> Future[Any]:
        """Begin to do what is asked; a request whose number is known is not done again."""
        number, verb, given = content["number"], content["verb"], content["given"]
        if number not in self._answers:
            self._answers[number] = self._workers.submit(self._answer, content["start"], verb, given)
            for old in list(self._answers)[:-_KEPT]:
                del self._answers[old]
        return self._answers[number]

    def _answer(self, name: str, verb: str, given: list[Any]) -> Any:
        if verb == "forget":
            self.remove()
            return None
        if verb == "end":
            if given[0]:
                descendants.end((), self._job, seconds=descendants.SOON_S)
            return None
        return self._starts[name].answer(verb, given)

    # -- end

    @property
    def some_live(self) -> bool:
        """Whether a process that has joined lives, as far as it has not said how it ends."""
        return any(start.processes.alive(rank) for start in self._starts.values() for rank in start.ranks) or any(
            protocol.lives(pid) for pid in self._joined()
        )

    def _joined(self) -> list[str]:
        """The processes that have joined the job."""
        try:
            names = os.listdir(self._folder.path)
        except OSError:
            return []
        return [name.removeprefix(protocol.JOINED) for name in names if name.startswith(protocol.JOINED)]

    def settle(self) -> None:
        """Remove the files once it is known how all ranks end, while these wait for it; else let those end of which it is.

        With its last rank, a scheduler ends everything on a host, this agent included.
        """
        if self.removed:
            return
        if self._all_done():
            fd = os.open(other_host.lock_of(self._folder.path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._all_done():  # no process has joined meanwhile
                    self.remove()
                os.unlink(other_host.lock_of(self._folder.path))
            except OSError:  # one is about to
                pass
            finally:
                os.close(fd)
        if not self.removed:
            for start in self._starts.values():
                start.let_go()

    def _all_done(self) -> bool:
        joined = self._joined()
        done = {str(pid) for start in self._starts.values() for pid in start.done(alone=self._alone)}
        return bool(joined) and all(pid in done or not protocol.lives(pid) for pid in joined)

    def remove(self) -> None:
        """Remove the files; ranks that live keep what they have open."""
        self.removed = True
        self._folder.remove()

    def alone(self) -> None:
        """The launcher is gone: nobody needs to know how the ranks end."""
        self._alone = True

    @property
    def is_over(self) -> bool:
        """Whether all ranks have ended, and the launcher has had the time to see who waits for them, or is gone."""
        return self.removed and not self.some_live and (self._alone or (self._shown > 1 and not self._kept.any))


def serve(launcher: Launcher, agent: JobAgent) -> None:
    """Answer the launcher until it ends this agent, or all ranks have ended."""
    last_heard, ends, terminated = time.monotonic(), False, [0.0]
    signal.signal(signal.SIGTERM, lambda *_: terminated.__setitem__(0, time.monotonic()))
    pending: deque[tuple[int, str, Future[Any]]] = deque()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    poller = zmq.Poller()
    poller.register(launcher.socket, zmq.POLLIN)
    poller.register(woken, zmq.POLLIN)

    def done(_: Future[Any]) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(wake, b".")

    while True:
        ready = dict(poller.poll(int(_TICK_S * 1000)))
        now = time.monotonic()
        if woken in ready:
            os.read(woken, 4096)
        look: dict[str, Any] | None = None
        while (message := launcher.received()) is not None:
            last_heard = now
            if message["kind"] == "look":
                look = message  # of many that have come after a link was cut, only the last one is waited for
            else:
                future = agent.begin(message)
                pending.append((message["id"], message["verb"], future))
                future.add_done_callback(done)
        if look is not None:
            try:
                content = agent.look(look)
            except Exception as error:
                content = {"status": "error", "error": f"{type(error).__name__}: {error}"}
            launcher.send({"kind": "answer", "id": look["id"], "content": content})
        for one in [one for one in pending if one[2].done()]:
            pending.remove(one)
            identity, verb, future = one
            error = future.exception()
            said = {"error": f"{type(error).__name__}: {error}"} if error else {"content": future.result()}
            launcher.send({"kind": "answer", "id": identity, **said})
            ends = ends or verb == "end"
        if ends or (now - last_heard > _ASKED_S and (now - last_heard > _ALONE_S or launcher.is_gone())):
            agent.alone()
        agent.settle()
        if agent.is_over or (ends and not agent.some_live) or (terminated[0] and now - terminated[0] > _LAST_S):
            break
    launcher.send({"kind": "bye"})


def main() -> None:
    """Read the order of a rank, fork the agent, and let it say on standard output whether it is ready."""
    order = json.loads(sys.stdin.buffer.read())
    if os.fork():
        os._exit(0)
    os.chdir("/")
    signal.alarm(int(other_host.START_S))  # the rank waits no longer
    own: LockedFolder | None = None
    try:
        launcher = Launcher(order)
        own = LockedFolder.at(order["folder"])
        ready = {"pid": os.getpid(), "started": protocol.started(os.getpid()), "ahead_ns": launcher.ahead_ns}
        write_private(os.path.join(own.path, "agent.json"), json.dumps(ready))
        agent = JobAgent(own, order["job"])
        launcher.begin()
    except Exception as error:
        if own is not None:
            own.remove()
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
        time.sleep(_TICK_S)  # the last answer is on its way
        if not agent.removed:  # else there may be another agent by now
            own.remove()
        os._exit(0)
