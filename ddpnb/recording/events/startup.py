"""Events of start-up and of groups."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.recording.events.base import Attempt, Event, event, record, rest


@event("environment")
class Environment(Event):
    """The variables that matter to a distributed run."""

    variables: Mapping[str, str] = rest()


@event("device")
class DeviceChosen(Event):
    device: str = ""
    versions: Mapping[str, str] = rest()  # of torch, python, cuda and nccl: the same on all ranks


@event("threads")
class ThreadsSet(Event):
    """``torch.set_num_threads``."""

    threads: int = 0


@record
class Joining(Attempt):
    """A rank waits at an address until all ranks are there."""

    init_method: str = ""
    address: str = ""
    world_size: int | None = None
    rank: int | None = None


@event("init_rpc")
class InitRpc(Joining):
    """A rank joins the RPC framework, which has no group and no collectives."""


@event("init_process_group")
class InitProcessGroup(Joining):
    """A rank joins the default group. ``size``, ``as_rank`` and ``implementation`` are what it became.

    ``attempts_before``: of the launcher, in which other processes have written into the same store.
    """

    backend: str = ""
    implementation: str = (
        ""  # the classes of its back ends: of nccl ProcessGroupNCCL, or ProcessGroupNCCL2 (torch 2.15)
    )
    asked: str | None = None  # by the script; the launcher may have chosen another backend
    timeout_s: float | None = None  # None: the default
    threads: int = 0
    versions: Mapping[str, str] = rest()
    size: int | None = None
    as_rank: int | None = None
    attempts_before: int = 0


@event("store")
class StoreOpened(Attempt):
    """A rendezvous: the rank connects to the store, or waits for it."""

    url: str = ""


@event("store made")
class StoreMade(Attempt):
    """The script makes a TCPStore itself: the rank listens there, or connects."""

    host: str = ""
    port: int = 0
    is_master: bool = False

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@event("new_group")
class NewGroup(Attempt):
    """``local``: with ``use_local_synchronization`` only the members make it. ``name``: torch counts groups.

    ``maker``: the class of torch that makes it: ``DeviceMesh``.
    """

    ranks: tuple[int, ...] = ()
    local: bool = False
    name: str = ""
    timeout_s: float | None = None
    backend: str = ""
    maker: str = ""


@event("device mesh")
class MeshMade(Event):
    """A DeviceMesh whose axes have names; ``coordinate`` is that of this rank, empty where it is not in the mesh."""

    names: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    coordinate: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        """``dp=1, tp=3``."""
        return ", ".join(f"{name}={place}" for name, place in zip(self.names, self.coordinate, strict=False))


@event("destroy_process_group")
class DestroyProcessGroup(Attempt):
    """``everything``: all groups, and not one of ``new_group``."""

    everything: bool = True


@event("ranks started")
class RanksStarted(Event):
    """A process that is no rank yet starts others that become ranks. ``joins``: what they run joins a group, or is a launcher.

    ``command``: what starts the same script without a launcher.
    """

    how: str = ""
    count: int = 0
    joins: bool = False
    command: str = ""


@event("used after fork")
class UsedAfterFork(Event):
    """A forked child uses the process group of its parent."""

    pid: int = 0
