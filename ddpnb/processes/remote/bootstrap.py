"""What runs on the user's own engines, one for each host: facts of the host, which addresses it reaches, the start of an agent."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any

from ddpnb.processes import devices
from ddpnb.processes.engines.starter import CHILD, ENGINE_ARGS
from ddpnb.processes.remote import addresses
from ddpnb.recorder import protocol

LOCAL = ("tcp://127.", "tcp://localhost", "ipc://")  # addresses that are on this machine
_LISTEN_S = 60.0  # that a listener stays open
_ARGS = [
    *(argument for argument in ENGINE_ARGS if "startup_command" not in argument),
    "--IPEngine.startup_command=from ddpnb.processes.remote import agent as _a; _a.attach(); del _a",
]


def facts() -> dict[str, Any]:
    """What the launcher must know of this host before ranks run here."""
    gpus = devices.count_gpus()
    return {
        "host": protocol.host(),
        "python": list(sys.version_info[:2]),
        "ddpnb": version(),
        "torch": _version("torch"),
        "ipyparallel": _version("ipyparallel"),
        "addresses": addresses.own_addresses(),
        "gpus": gpus,
        "nccl": bool(gpus) and devices.nccl_works(),
        "directory": os.getcwd(),
        "cpus": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        "connection": _unencrypted_connection(),
    }


def _unencrypted_connection() -> str:
    """Where this engine is connected without encryption, and not on one machine; empty if it is not."""
    from ipyparallel.engine.app import IPEngine

    engine = IPEngine.instance()
    url = str(engine.registration_url)
    return "" if engine.curve_serverkey or engine.using_ssh or url.startswith(LOCAL) else url


def version() -> str:
    """That of ddpnb, which this layer does not import as a whole."""
    return str(vars(sys.modules["ddpnb"])["__version__"])


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def listen() -> list[Any]:
    """Listen for a minute: its port and word."""
    listener = addresses.Listener()
    timer = threading.Timer(_LISTEN_S, listener.close)
    timer.daemon = True
    timer.start()
    return [listener.port, listener.word]


_agents: dict[int, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}  # that this engine has started, and what they write


def start(config: dict[str, Any]) -> int:
    """Start the agent of this host; it ends with this engine. Returns its process ID.

    Args:
        config: ``connection`` (to the controller of the world), and what ``agent.Agent`` takes. It may hold keys: the
            agent reads it from a pipe.
    """
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("IPP_")},
        protocol.PARENT: str(os.getpid()),
        protocol.AGENT: config["host"],
    }
    log = tempfile.TemporaryFile()
    agent = subprocess.Popen(
        [*CHILD, "agent", tempfile.gettempdir(), *_ARGS],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env=environment,
        start_new_session=True,
    )
    assert agent.stdin is not None
    with contextlib.suppress(BrokenPipeError), agent.stdin as pipe:
        pipe.write(json.dumps(config).encode())
    _agents[agent.pid] = agent, log
    threading.Thread(target=agent.wait, name="ddpnb agent", daemon=True).start()  # so that it leaves no zombie
    return agent.pid


def log_of(pid: int) -> str:
    """The end of what an agent that this engine has started has written."""
    _, log = _agents[pid]
    log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
    return log.read().decode("utf-8", "replace").strip()


def exit_status(pid: int) -> int | None:
    """How an agent that this engine has started has ended; None while it runs."""
    return _agents[pid][0].poll()
