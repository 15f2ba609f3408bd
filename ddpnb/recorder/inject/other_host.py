"""A process of a job on another host than its launcher, which watches the ranks of all hosts through an agent on each.

The first rank on a host starts the agent there, and waits until that has reached the launcher and made a folder for the
records: a few tenths of a second. What the agent needs is in the environment (``protocol.HOSTS``: addresses and the keys of
this job); it gets that through a pipe. If the launcher is not reached, the ranks only record, as by ``ddpnb run --record``.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ddpnb.recorder.files import clock
from ddpnb.recorder.process import parent_death
from ddpnb.recording import protocol
from ddpnb.recording.files import make_folder, own_folder, private, write_private
from ddpnb.texts import shell_word

START_S = 15.0  # for the agent to say whether it has reached the launcher
_TICK_S = 0.01
_NOTE = "not-watched"  # in the folder of a host whose ranks are only recorded
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
# Not by its path: the working directory, and with it the files of the user, must not be on its import path.
_AGENT = f"import sys; sys.path.insert(0, {_ROOT!r}); from ddpnb.ranks.remote import agent; agent.main()"


def packed(way: Mapping[str, Any]) -> str:
    """A way to the launcher as the value of ``protocol.HOSTS``: of letters and digits that no shell changes."""
    return base64.urlsafe_b64encode(json.dumps(way).encode()).decode()


def unpacked(text: str) -> dict[str, Any]:
    """What ``packed`` was given: ``addresses``, ``port``, ``server`` (its public key), ``public`` and ``secret`` (keys of the
    agents), ``boot`` and ``directory`` of the launcher, and its ``python``.
    """
    return dict(json.loads(base64.urlsafe_b64decode(text)))


def join() -> None:
    """Make this process one of the job on this host, if that is not the launcher's: its folder, its clock.

    It waits for the agent at most ``START_S`` seconds. Changes the environment of this process.
    """
    if os.environ.get(protocol.RECORD):
        return
    way = unpacked(os.environ[protocol.HOSTS])
    job = os.environ[protocol.FOLDER]
    if way["boot"] == protocol.boot() and os.path.isdir(job):
        return
    folder = folder_of(job)
    shared = way["directory"] if os.access(way["directory"], os.W_OK) else tempfile.gettempdir()
    alone = os.path.join(shared, f"ddpnb-record-{os.path.basename(job)}")
    note = os.path.join(alone, protocol.host_folder(protocol.host()), _NOTE)
    with _first(lock_of(folder)):
        agent = _agent(folder)
        if agent is None and not os.path.exists(note):
            agent = _start(way, job, folder)
            if "why" in agent:
                _only_record(agent["why"], alone, note)
        if agent is not None and "why" not in agent:
            open(os.path.join(folder, f"{protocol.JOINED}{os.getpid()}"), "w", opener=private).close()
    if agent is None or "why" in agent:
        os.environ |= {protocol.RECORD: "1", protocol.JOB: alone, protocol.FENCE: "off"}
        return
    os.environ |= {
        protocol.JOB: folder,
        protocol.PARENT: str(agent["pid"]),
        protocol.CLOCK: str(agent["ahead_ns"]),
    }
    clock.set_ahead_ns(agent["ahead_ns"])  # a script that imports ddpnb first has imported it
    parent_death.let_look_inside(agent["pid"])


def folder_of(job: str) -> str:
    """The folder of a job on this host, which is not the launcher's; the one around it is made.

    Args:
        job: the folder on the launcher's host.

    Raises:
        OSError: it cannot be made.
    """
    wanted = [os.environ.get("DDPNB_SHM", ""), "/dev/shm"]
    base = next((path for path in wanted if os.path.isdir(path)), tempfile.gettempdir())
    place = hashlib.blake2b(protocol.place().encode(), digest_size=6).hexdigest()
    mine = os.path.join(os.path.abspath(base), f"ddpnb-{os.geteuid()}")
    try:
        own_folder(mine)
    except OSError:  # another user has taken this name: the ranks of the job know one that nobody else does
        secret = hashlib.blake2b(os.environ[protocol.HOSTS].encode(), digest_size=8).hexdigest()
        own_folder(mine := f"{mine}.{secret}")
    return os.path.join(mine, f"{os.path.basename(job)}-{place}")


def lock_of(folder: str) -> str:
    """The file that is locked while a process joins the job, and while its agent ends."""
    return f"{folder}.lock"


@contextlib.contextmanager
def _first(path: str) -> Iterator[None]:
    """One process of this host after the other; the file is gone in the end."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        deadline = time.monotonic() + START_S + 1
        while time.monotonic() < deadline:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_TICK_S)
        yield
        with contextlib.suppress(OSError):
            os.unlink(path)
    finally:
        os.close(fd)


def _agent(folder: str) -> dict[str, Any] | None:
    """What the agent that lives on this host has said when it was ready."""
    try:
        with open(os.path.join(folder, "agent.json")) as file:
            agent: dict[str, Any] = json.load(file)
        return agent if protocol.started(agent["pid"]) == agent["started"] else None
    except (OSError, ValueError, LookupError):
        return None


def _start(way: Mapping[str, Any], job: str, folder: str) -> dict[str, Any]:
    """Start the agent; what it says: ``pid``, ``ahead_ns``, or ``why`` it cannot be used."""
    python = way["python"] if os.access(way["python"], os.X_OK) else sys.executable
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DDPNB_") and name != "RANK"},
        protocol.AGENT: protocol.host(),
        "PYTHONPATH": os.pathsep.join(
            path for path in paths if not path.endswith(os.path.join("ddpnb", "recorder", "inject", "site"))
        ),
    }
    order = {**way, "kind": "job", "job": job, "folder": folder, "seconds": START_S}
    starter, said = start_agent(python, order, environment)  # the agent is its child, and none of this process
    if starter is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            starter.wait(1)
    return said


def start_agent(
    python: str, order: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes] | None, dict[str, Any]]:
    """Start the process of an agent, and wait until it is ready.

    Args:
        python: the interpreter.
        order: for ``processes.remote.agent``.
        environment: of the process.

    Returns:
        The process, and what it says: ``pid``, ``ahead_ns``; or ``why`` it cannot be used.
    """
    try:
        process = subprocess.Popen(
            [python, "-P", "-c", _AGENT, "agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",  # which an empty entry of PYTHONPATH means
            start_new_session=True,
        )
    except OSError as error:
        return None, {"why": f"{python} cannot be started: {error.strerror}"}
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        with contextlib.suppress(OSError):
            process.stdin.write(json.dumps(order).encode())
            process.stdin.close()
        told = _line(process.stdout.fileno(), order["seconds"])
    if told is None:
        process.kill()
        return process, {"why": f"its agent was not ready in {order['seconds']:g} s"}
    try:
        return process, dict(json.loads(told))
    except ValueError:
        return process, {"why": f"{python} cannot run its agent: does it have the packages of ddpnb?"}


def _line(fd: int, seconds: float) -> bytes | None:
    """What comes on a pipe until it is closed; None: it is not in time."""
    text, deadline = b"", time.monotonic() + seconds
    ready = select.poll()
    ready.register(fd, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if ready.poll(left * 1000):
            part = os.read(fd, 4096)
            if not part:
                return text
            text += part
    return None


def _only_record(why: str, alone: str, note: str) -> None:
    """Say once on this host that its ranks are not watched."""
    make_folder(os.path.dirname(note))
    write_private(note, why)
    print(
        f"ddpnb: the ranks on host {protocol.host()} are not watched, only recorded: {why[:500]}. What they do: "
        f"ddpnb diagnose {shell_word(alone)}",
        file=sys.stderr,
        flush=True,
    )
