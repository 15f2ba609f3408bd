"""What runs on the user's own engines, one for each host: facts of the host, which addresses it reaches, the start of an agent."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import threading
from typing import Any

from ddpnb.ranks import devices
from ddpnb.ranks.remote import addresses
from ddpnb.recorder.inject import other_host
from ddpnb.recording import protocol

LOCAL = ("tcp://127.", "tcp://localhost", "ipc://")  # addresses that are on this machine
_LISTEN_S = 60.0  # that a listener stays open


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


_agents: dict[int, subprocess.Popen[bytes]] = {}  # that this engine has started


def start(order: dict[str, Any]) -> int:
    """Start the agent of this host, and wait until it is ready; it ends with this engine. Returns its process ID.

    Args:
        order: for ``agent.main``. It holds keys: the agent reads it from a pipe.

    Raises:
        RuntimeError: it cannot be used.
    """
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("IPP_")},
        protocol.PARENT: str(os.getpid()),
        protocol.AGENT: order["host"],
    }
    agent, said = other_host.start_agent(sys.executable, {"directory": os.getcwd(), **order}, environment)
    if agent is not None:
        threading.Thread(target=agent.wait, name="ddpnb agent", daemon=True).start()  # so that it leaves no zombie
    if agent is None or "why" in said:
        raise RuntimeError(said["why"])
    _agents[agent.pid] = agent
    return agent.pid


def exit_status(pid: int) -> int | None:
    """How an agent that this engine has started has ended; None while it runs."""
    return _agents[pid].poll()
