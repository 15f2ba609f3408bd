"""The environment of a rank, as torchrun would give it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Protocol

from ddpnb.errors import LaunchError, UsageError
from ddpnb.ranks.devices import Plan
from ddpnb.recording import protocol
from ddpnb.recording.descriptors import Descriptor

LOOPBACK = "127.0.0.1"


def torchrun_environment(plan: Plan, rank: int, port: int, address: str = LOOPBACK) -> dict[str, str]:
    """The variables that torchrun sets for ``rank``, each host of the plan being a node.

    TORCHELASTIC_USE_AGENT_STORE is left out on purpose: there is no agent, rank 0 hosts the store.
    """
    n, neighbours = len(plan.devices), plan.neighbours(rank)
    hosts = list(dict.fromkeys(plan.hosts))
    variables = {
        "RANK": rank,
        "LOCAL_RANK": neighbours.index(rank),
        "WORLD_SIZE": n,
        "LOCAL_WORLD_SIZE": len(neighbours),
        "GROUP_RANK": hosts.index(plan.hosts[rank]) if hosts else 0,
        "GROUP_WORLD_SIZE": max(1, len(hosts)),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": n,
        "ROLE_NAME": "default",
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "none",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    environment = {name: str(value) for name, value in variables.items()}
    # torchrun's own default: n processes with one thread per core each would fight for the cores.
    environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1" if n > 1 else str(os.cpu_count() or 1))
    return environment


def rank_environment(
    plan: Plan, rank: int, port: int, debug: Mapping[str, str], address: str = LOOPBACK
) -> dict[str, str]:
    """The variables of a rank that ddpnb starts: torchrun's, and those of its device and backend.

    Args:
        plan: of the devices.
        rank: the rank.
        port, address: MASTER_PORT and MASTER_ADDR.
        debug: from ``debug_environment``, or none.
    """
    return {
        **torchrun_environment(plan, rank, port, address),
        **plan.environment,
        **debug,
        "DDP_BACKEND": plan.backend,
        protocol.DEVICE: plan.devices[rank],
        **({protocol.BACKEND: plan.backend} if plan.chosen else {}),
    }


def debug_environment(backend: str) -> dict[str, str]:
    """Debugging variables that are safe for the backend.

    TORCH_DISTRIBUTED_DEBUG=DETAIL is not among them: with DistributedDataParallel on gloo it is a
    segmentation fault in torch 2.13. What the user has set stays.
    """
    wanted = {"TORCH_DISTRIBUTED_DEBUG": "INFO", "TORCH_CPP_LOG_LEVEL": "INFO", "TORCH_SHOW_CPP_STACKTRACES": "1"}
    if backend == "nccl":
        wanted |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}
    return {name: value for name, value in wanted.items() if name not in os.environ}


def working_directory() -> str:
    """Where the user works, and the ranks too.

    Raises:
        UsageError: it has been removed.
    """
    try:
        return os.getcwd()
    except OSError as error:
        raise UsageError(
            f"the working directory cannot be used: {error.strerror}.", "Change to a folder that exists (cd, os.chdir)."
        ) from None


class Port(Protocol):
    """A TCP port that no other world will choose, until ``release``."""

    port: int

    def release(self) -> None: ...


class ReservedPort(Port):
    """A TCP port on the loopback that no other world will choose, until ``release``.

    The socket is bound but does not listen, so the rank that hosts the store can bind it too.
    """

    def __init__(self, port: int | None = None) -> None:
        try:
            reserving = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:
            raise LaunchError(
                f"no port can be reserved: {error.strerror}.", "Check the limit on open files (ulimit -n)."
            ) from None
        reserving.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reserving.bind((LOOPBACK, port or 0))
            if port:
                with socket.socket() as probe:
                    probe.settimeout(0.5)
                    if probe.connect_ex((LOOPBACK, port)) == 0:
                        raise OSError("it is in use")
        except (OSError, OverflowError) as error:
            reserving.close()
            raise UsageError(f"port {port} cannot be used: {error}.", "Choose another, or leave it out.") from None
        self.port = reserving.getsockname()[1]
        self._descriptor = Descriptor(reserving.detach())

    def release(self) -> None:
        self._descriptor.close()
