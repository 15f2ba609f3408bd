"""Simulated hosts on this machine: namespaces of Linux, and a network between them whose links can be cut.

Each host has its own network, process IDs, host name, /dev/shm and /tmp, and its own monotonic clock and boot ID. The
files of the project, of Python and of ``Network.shared`` are visible on all hosts, as with a home folder on NFS. The
launcher, which is the process that makes them, has a link to the same network. It needs root and Linux 5.6.

Everything ends with the launcher, also if that is killed: namespaces and links are removed by the kernel when their last
process ends, and each of these processes ends with its parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import ddpnb

ROOT = Path(ddpnb.__file__).parents[1]
DEADLINE_S = 240.0  # for one step, on a busy machine
_NEEDED = ("ip", "unshare", "nsenter", "setpriv", "mount", "bash")
_BOOT = "/proc/sys/kernel/random/boot_id"
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL", "--"]  # the process ends with the thread that starts it
#: ... and with it all that it has started, since it is process 1 of a namespace.
WITH_ALL = [*WITH_PARENT, "unshare", "--pid", "--fork", "--kill-child=KILL"]
_NAMESPACES = ["--net", "--pid", "--uts", "--ipc", "--mount", "--fork", "--kill-child=KILL", "--mount-proc"]
_SLEEP = ["sleep", "86399"]  # what process 1 of a host waits for
# What comes from the test run, and what no user has in a new shell.
_OWN = ("TMPDIR", "PYTEST_CURRENT_TEST", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def missing() -> str:
    """Why there can be no simulated hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "simulated hosts need root"
    absent = [name for name in _NEEDED if shutil.which(name) is None]
    if absent:
        return f"simulated hosts need {', '.join(absent)} (Debian: apt-get install iproute2 util-linux)"
    tried = subprocess.run(
        ["unshare", *_NAMESPACES, "--time", "--monotonic", "60", "true"], capture_output=True, text=True, check=False
    )
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


def _command(*arguments: object) -> str:
    """Run a command that must succeed; its output."""
    done = subprocess.run(
        [str(one) for one in arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, arguments))}: {done.stderr.strip()}"
    return done.stdout


def _child(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else None
    return None


def wait_until(what: str, condition: Callable[[], object]) -> None:
    """Wait for a condition; fails with ``what`` after a minute."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(0.01)


def _written(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


class Host:
    """One simulated host: namespaces, and in them a bash as process 1, which waits for all processes without a parent.

    Args:
        name: its host name.
        address: its address in the network.
        ahead_s: how much its monotonic clock and the time since its boot are ahead of this machine's, in seconds.
        files: the text of files that it has instead of this machine's, such as /etc/hosts.
        folder: an empty one, for what is mounted.
        visible: folders that it sees too, those in /tmp included.
    """

    def __init__(
        self, name: str, address: str, ahead_s: int, files: Mapping[str, str], folder: Path, visible: Sequence[Path]
    ) -> None:
        self.name = name
        self.address = address
        ready = folder / "ready"
        files = {**files, _BOOT: f"{uuid.uuid4()}\n"}
        for number, text in enumerate(files.values()):
            (folder / f"file{number}").write_text(text)
        temporary = folder / "tmp"
        temporary.mkdir()
        steps = [
            "set -e",
            f"exec 8>{ready}",  # open: its folder may be hidden when all is mounted
            f"hostname {name}",
            *(f"mount --bind {folder}/file{number} {path}" for number, path in enumerate(files)),
            "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
            f"mount -t tmpfs -o mode=1777 tmpfs {temporary}",
        ]
        for path in visible:
            if path.is_relative_to("/tmp"):
                place = temporary / path.relative_to("/tmp")
                steps += [f"mkdir -p {place}", f"mount --bind {path} {place}"]
        steps += ["cd /", f"mount --move {temporary} /tmp", "echo ready >&8", "exec 8>&-", "set +e"]
        steps += [f"while :; do {' '.join(_SLEEP)} & wait; done"]
        clocks = ["--time", "--monotonic", str(ahead_s), "--boottime", str(ahead_s)]
        command = [*WITH_PARENT, "unshare", *_NAMESPACES, *clocks, "bash", "-c", "\n".join(steps)]
        with open(folder / "stderr", "wb") as log:
            self._unshare = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(f"{name} starts", lambda: _written(ready) or self._unshare.poll() is not None)
            init = _child(self._unshare.pid)
            assert init is not None, (folder / "stderr").read_text()
        except BaseException:
            end(self._unshare)  # process 1 ends with it
            raise
        self.init = init

    @property
    def enter(self) -> list[str]:
        """What goes before a command that is to run on this host."""
        return ["nsenter", "--target", str(self.init), "--all", "--", *WITH_PARENT]

    @property
    def pids(self) -> list[int]:
        """The processes of the host but for its own, as this machine numbers them."""
        own = self._namespace(self.init)
        found = []
        for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
            if own and self._namespace(pid) == own and pid != self.init and not self._sleeps(pid):
                found.append(pid)
        return found

    @staticmethod
    def _namespace(pid: int) -> str:
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{pid}/ns/pid")
        return ""

    def _sleeps(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:2] == _SLEEP
        return True  # it has ended

    def kill(self) -> None:
        """End all its processes at once, as the kernel does when process 1 ends."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        self._unshare.wait()


class Network:
    """Simulated hosts, a switch to which all and the launcher are linked, and a folder that all see.

    Args:
        folder: an empty one.
        names: a beginning of the name of each host.
        resolved: whether a host finds the address of each in its /etc/hosts; if not, it knows its own name alone, as
            127.0.1.1, which is what Debian writes there.
        files: the text of more files that all hosts have instead of this machine's.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str] = ("alpha", "beta"),
        *,
        resolved: bool = True,
        files: Mapping[str, str] | None = None,
    ) -> None:
        token = secrets.token_hex(3)
        self.names = [f"{name}-{token}" for name in names]
        self.hosts: dict[str, Host] = {}
        self.shared = folder / "shared"
        self.shared.mkdir()
        self._files = files or {}
        self._ports: dict[str, str] = {}
        self._stack = contextlib.ExitStack()
        try:
            self._prefix = self._stack.enter_context(_free_subnet())
            self._start_switch(f"dnb-{token}")
            for number, name in enumerate(self.names):
                self._start_host(name, number, folder, resolved=resolved)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """That of the launcher."""
        return f"{self._prefix}.1"

    def _start_switch(self, link: str) -> None:
        self.link = link  # the launcher's interface
        switch = subprocess.Popen([*WITH_PARENT, "unshare", "--net", "sleep", "inf"], start_new_session=True)
        self._stack.callback(end, switch)
        here = os.readlink("/proc/self/ns/net")
        wait_until("the switch starts", lambda: os.readlink(f"/proc/{switch.pid}/ns/net") != here)
        self._at_switch = ["nsenter", "--target", str(switch.pid), "--net", "ip"]
        _command(*self._at_switch, "link", "add", "switch", "type", "bridge")
        _command(*self._at_switch, "link", "set", "switch", "up")
        _command("ip", "link", "add", link, "type", "veth", "peer", "name", "launcher", "netns", switch.pid)
        self._stack.callback(lambda: subprocess.run(["ip", "link", "delete", link], capture_output=True, check=False))
        self._plug_in("launcher")
        _command("ip", "address", "add", f"{self.address}/24", "dev", link)
        _command("ip", "link", "set", link, "up")

    def _plug_in(self, port: str) -> None:
        _command(*self._at_switch, "link", "set", port, "master", "switch", "up")

    def _start_host(self, name: str, number: int, folder: Path, *, resolved: bool) -> None:
        lines = ["127.0.0.1 localhost"]
        lines += [f"{self._prefix}.{2 + at} {one}" for at, one in enumerate(self.names)] if resolved else []
        lines += [] if resolved else [f"127.0.1.1 {name}"]
        own = folder / name
        own.mkdir()
        visible = [self.shared, ROOT, Path(sys.prefix), Path(sys.prefix).resolve()]
        ahead_s = (3 + 47 * number) * 3600
        files = {"/etc/hosts": "\n".join(lines) + "\n", **self._files}
        host = Host(name, f"{self._prefix}.{2 + number}", ahead_s, files, own, visible)
        self._stack.callback(host.kill)
        self.hosts[name] = host
        self._ports[name] = port = f"host{number}"
        _command(*self._at_switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.init)
        self._plug_in(port)
        inside = ["nsenter", "--target", str(host.init), "--net", "ip"]
        _command(*inside, "link", "set", "lo", "up")
        _command(*inside, "address", "add", f"{host.address}/24", "dev", "eth0")
        _command(*inside, "link", "set", "eth0", "up")

    def cut(self, name: str) -> None:
        """Cut the link of a host: packets are dropped, and nobody is told."""
        _command(*self._at_switch, "link", "set", self._ports[name], "down")

    def restore(self, name: str) -> None:
        """Undo ``cut``."""
        _command(*self._at_switch, "link", "set", self._ports[name], "up")

    def kill(self, name: str) -> None:
        """A host dies as if its power failed: all at once, without a last packet."""
        self.cut(name)
        self.hosts[name].kill()

    def popen(self, name: str, *argv: object, **more) -> subprocess.Popen:
        """Start a command on a host, with the environment that a user has there."""
        environment = {key: value for key, value in os.environ.items() if key not in _OWN}
        environment |= {"PYTHONPATH": str(ROOT), **more.pop("env", {})}
        return subprocess.Popen([*self.hosts[name].enter, *map(str, argv)], env=environment, cwd="/", **more)

    def run(self, name: str, *argv: object, timeout: float = DEADLINE_S, **more) -> subprocess.CompletedProcess[str]:
        """Run a command on a host and wait for it."""
        more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
        with self.popen(name, *argv, **more) as process:
            try:
                output = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, *output)

    def pids(self, name: str) -> list[int]:
        """The processes of a host, as this machine numbers them; those of the simulation excluded."""
        return self.hosts[name].pids

    def close(self) -> None:
        self._stack.close()


def end(process: subprocess.Popen) -> None:
    """Kill a process and wait for it."""
    process.kill()
    process.wait()


@contextlib.contextmanager
def _free_subnet() -> Iterator[str]:
    """The first three bytes of a network that nothing here uses. A name of a socket reserves it among test runs."""
    used = [entry["dst"] for entry in json.loads(_command("ip", "-json", "route", "show"))]
    for _ in range(100):
        prefix = f"10.{random.randrange(64, 128)}.{random.randrange(256)}"
        if any(route.startswith(prefix.rpartition(".")[0]) for route in used):
            continue
        with socket.socket(socket.AF_UNIX) as reserved:
            with contextlib.suppress(OSError):
                reserved.bind(f"\0ddpnb-hosts-{prefix}")
                yield prefix
                return
    raise AssertionError("no free network found")
