"""Phases: events of a rank other than collectives.

The store, ``init_process_group``, ``new_group``, the wrapping of a model, optimizer steps and
``destroy_process_group`` are Python functions of torch; they are wrapped so that a phase opens
before and closes after. A wrapper forwards arguments, results and exceptions untouched.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.cuda import nccl
from torch.distributed import rpc
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.collectives.groups import implementation
from ddpnb.recorder.collectives.rebind import Orphans
from ddpnb.recorder.events.hooks import Hooks
from ddpnb.recorder.events.steps import Steps
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.holds.release import raises_releases
from ddpnb.recording.calls import Group
from ddpnb.recording.descriptors import open_missing
from ddpnb.recording.events.models import ModelWrapped
from ddpnb.recording.events.startup import (
    DestroyProcessGroup,
    DeviceChosen,
    Environment,
    InitProcessGroup,
    InitRpc,
    MeshMade,
    NewGroup,
    StoreMade,
    StoreOpened,
    ThreadsSet,
)
from ddpnb.recording.faults import PRETENDED_VERSION
from ddpnb.recording.protocol import BACKEND, DEVICE, ENVIRONMENT
from ddpnb.recording.rpc import start_of

raises_releases(__name__)

# What a person wants to see of the environment of a rank, by the beginnings of the names.
_NEAR = 12  # frames between the constructor of a mesh and new_group
_OURS = ("TORCHELASTIC_",)  # set for every run by the launcher


class Phases(Hooks):
    """The functions of torch that are phases of a rank's life."""

    def __init__(self, box: BlackBox, door: Door) -> None:
        super().__init__(box)
        self._door = door
        self.orphans = Orphans()
        #: whether this run shares the state of earlier functions and cells, and whether the default group is theirs
        self.shares = self.inherited = False
        self._replacement_stated = False
        self.renewed = False  # ddpnb has created the inherited group by itself
        self._meeting = False  # inside a rendezvous
        #: called before a group is made or destroyed, with the function and the group; they raise nothing of their own
        self.on_group: list[Callable[[str, Group | None], None]] = []

    def install(self) -> None:
        self.replace(c10d, "init_process_group", self._init)
        self.replace(c10d, "new_group", self._new_group)
        self.replace(c10d, "destroy_process_group", self._destroy)
        self.replace(c10d, "rendezvous", self._rendezvous)
        if hasattr(dist.ProcessGroup, "reconfigure"):  # torch 2.14 and later
            self.before(dist.ProcessGroup, "reconfigure", self._reconfigure)
        if rpc.is_available():
            self.replace(rpc, "init_rpc", self._init_rpc)
        self.replace(TCPStore, "__init__", self._make_store)
        self.replace(DistributedDataParallel, "__init__", self._wrap_model)
        self.replace(torch.autograd, "backward", self._backward)
        self.after(DeviceMesh, "__init__", self._mesh_made)
        self.after(torch, "set_num_threads", lambda _none, count: self.emit(ThreadsSet(threads=int(count))))
        steps = Steps(self.box)
        steps.put()
        self.on_removal(steps.remove)

    def environment(self) -> None:
        """Record the environment and the device that this rank was given."""
        self.box.emit(Environment(variables=environment()))
        self.box.emit(DeviceChosen(device=device() or "cpu", versions=versions()))

    def _introduce(self, group: Any) -> None:
        """Let the door see a group when it is made: identities count groups in this order."""
        try:
            self._door.groups.get(group)
        except Exception:
            self._door.detach()

    def _tell(self, function: str, group: Group | None = None) -> None:
        for look in self.on_group:
            look(function, group)

    # -- wrappers: each opens a phase, calls the original, closes the phase

    def _init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            asked = args[0] if args else kwargs.get("backend")
            args, kwargs = _with_chosen_backend(args, kwargs)

            def argument(place: int, name: str, variable: str = "") -> Any:
                value = args[place] if len(args) > place else kwargs.get(name)
                return os.environ.get(variable) if value in (None, -1) else value

            def gather() -> InitProcessGroup:
                method = str(argument(1, "init_method") or "env://")
                return InitProcessGroup(
                    backend=str(argument(0, "backend") or ""),
                    asked=str(asked or ""),
                    init_method=method,
                    address=_address(method),
                    world_size=argument(3, "world_size", "WORLD_SIZE"),
                    rank=argument(4, "rank", "RANK"),
                    timeout_s=_seconds(argument(2, "timeout")),
                    threads=torch.get_num_threads(),
                    versions=versions(),
                    attempts_before=_attempts_before(method),
                )

            start = self.gathered(gather, InitProcessGroup())
            # A script may have changed it.
            self.emit(self.gathered(lambda: Environment(variables=environment()), Environment()))
            self._make_room()
            self._keep_standard_numbers()
            self._tell("init_process_group")
            with self.span(start) as span, self._door.release.looking(start.address):
                result = original(*args, **kwargs)
                self._introduce(dist.group.WORLD)
                span.learned = self.gathered(
                    lambda: InitProcessGroup(
                        size=dist.get_world_size(),
                        as_rank=dist.get_rank(),
                        implementation=implementation(dist.group.WORLD),
                    ),
                    InitProcessGroup(),
                )
            if self.shares:
                for trouble in self.orphans.adopt():
                    print(f"ddpnb: warning: {trouble}", file=sys.stderr, flush=True)
            return result

        return init_process_group

    def _init_rpc(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init_rpc(*args: Any, **kwargs: Any) -> Any:
            def gather() -> InitRpc:
                start = start_of(args, kwargs)
                return InitRpc(address=_address(start["init_method"]), **start)

            start = self.gathered(gather, InitRpc())
            # Where ranks come and go, none waits for all.
            with self.span(start) if start.world_size else contextlib.nullcontext():
                return original(*args, **kwargs)

        return init_rpc

    def _make_room(self) -> None:
        """Destroy the group of earlier functions and cells, or of ``world.rebuild()``, if the code creates its own."""
        self._door.release.settle()
        inherited, self.inherited = self.inherited, False
        if not inherited or not dist.is_initialized():
            return
        self.orphans.remember()
        self._await_the_store()
        end_groups()
        self._door.groups.begin_anew()
        if not self._replacement_stated and not self.renewed and os.environ.get("RANK") == "0":
            self._replacement_stated = True
            print(
                "ddpnb: init_process_group() replaces the process group of earlier functions or cells, or of "
                "world.rebuild(). Without it, the code uses that group.",
                file=sys.stderr,
                flush=True,
            )

    def _await_the_store(self) -> None:
        """On the other ranks, wait until rank 0 has closed the store of the old group: the new one may have its port."""
        store = c10d._get_default_store()
        while isinstance(store, PrefixStore):
            store = store.underlying_store
        port = os.environ.get("MASTER_PORT")
        if os.environ.get("RANK") == "0" or not isinstance(store, TCPStore) or str(store.port) != port:
            return
        while _is_open(store):
            if self._door.release.wanted:
                raise self._door.release.exception()
            time.sleep(0.01)

    def _keep_standard_numbers(self) -> None:
        """A script that has closed its standard files does not give their numbers to the group's connections."""
        with contextlib.suppress(OSError):
            open_missing()

    def _rendezvous(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def rendezvous(*args: Any, **kwargs: Any) -> Iterator[Any]:
            found = iter(original(*args, **kwargs))
            while True:
                with self.span(StoreOpened(url=str(args[0]) if args else "")), self._door.release.converting():
                    self._meeting = True
                    try:
                        one = next(found, None)
                    finally:
                        self._meeting = False
                if one is None:
                    return
                yield one

        return rendezvous

    def _make_store(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(store: Any, *args: Any, **kwargs: Any) -> None:
            if self._meeting:  # what torch makes is part of the rendezvous
                original(store, *args, **kwargs)
                return
            names = dict(zip(("host_name", "port", "world_size", "is_master"), args, strict=False)) | kwargs

            def gather() -> StoreMade:
                host, port = str(names.get("host_name", ""))[:200], int(names.get("port", 0))
                return StoreMade(host=host, port=port, is_master=bool(names.get("is_master", False)))

            with self.span(self.gathered(gather, StoreMade())):
                original(store, *args, **kwargs)

        return __init__

    def _new_group(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def new_group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            if ranks is not None:
                with contextlib.suppress(TypeError):  # torch will say what is wrong with them
                    ranks = list(ranks)  # an iterator can be read but once

            def gather() -> NewGroup:
                try:
                    members = sorted(ranks) if ranks is not None else list(range(dist.get_world_size()))
                except (TypeError, ValueError, RuntimeError):
                    members = []
                return NewGroup(
                    ranks=tuple(members),
                    local=bool(kwargs.get("use_local_synchronization", False)),
                    name=str(getattr(c10d._world, "group_count", "")),
                    timeout_s=_seconds(args[0] if args else kwargs.get("timeout")),
                    backend=str((args[1] if len(args) > 1 else kwargs.get("backend")) or ""),
                    maker=_maker(),
                )

            made = self.gathered(gather, NewGroup())
            self._keep_standard_numbers()
            self._tell("new_group", Group(made.ranks))
            with self.span(made), self._door.release.converting():
                group = original(ranks, *args, **kwargs)
                if isinstance(group, dist.ProcessGroup):
                    self._introduce(group)
            return group

        return new_group

    def _destroy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
            group = args[0] if args else kwargs.get("group")
            known = self._door.groups.known.get(id(dist.group.WORLD if group is None else group))
            self._tell("destroy_process_group", known.identity if known is not None else None)
            try:
                self._door.groups.forget(group)
            except Exception:
                self._door.detach()
            # Gloo's threads let go of the last call's tensors a moment after it is complete, and need the
            # interpreter for it (torch 2.13). If the group dies before, under the interpreter's lock, both
            # wait forever. Seen on a busy machine with us and without (3 of 24 runs of one script).
            time.sleep(0.02)
            with self.span(DestroyProcessGroup(everything=group in (None, dist.group.WORLD))):
                return original(*args, **kwargs)

        return destroy_process_group

    def _mesh_made(self, _none: None, mesh: Any, /, *_: Any, **__: Any) -> None:
        with contextlib.suppress(Exception):  # of one that is on no device, or of a version that keeps it elsewhere
            names = mesh.mesh_dim_names
            made = self._door.groups.meets(names, mesh.mesh) if names else None
            if made is not None:
                coordinate = made.places.get(dist.get_rank(), ())
                self.emit(MeshMade(names=made.names, shape=made.shape, coordinate=coordinate))

    def _reconfigure(self, group: Any, *_: Any, **__: Any) -> None:
        with contextlib.suppress(Exception):
            self._door.groups.reconfigured(group)

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """DDP waits for its collectives here, in C++: a release that ends this wait is reported as a release."""
        told = self._door.release.convert

        def backward(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except RuntimeError as error:
                self._door.release.torn = True
                released = told(error)
                if released is not error:
                    raise released from None
                del released  # this frame is in its traceback: they would keep each other
                raise

        return backward

    def _wrap_model(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(model: Any, *args: Any, **kwargs: Any) -> None:
            with self.span(ModelWrapped(wrapper=type(model).__name__)) as span:
                original(model, *args, **kwargs)
                span.learned = self.gathered(
                    lambda: ModelWrapped(parameters=sum(1 for _ in model.parameters())), ModelWrapped()
                )

        return __init__


def _maker() -> str:
    """The class of torch that is making a group: ``DeviceMesh``, or none."""
    frame = sys._getframe(1)
    for _ in range(_NEAR):
        if frame is None:
            break
        if frame.f_globals.get("__name__") == "torch.distributed.device_mesh":
            return "DeviceMesh"
        frame = frame.f_back
    return ""


def device() -> str:
    """The current device of this process, which a script chooses before it makes its group; empty: none is known.

    A kind of device is asked only where the script has initialised it.
    """
    for kind in ("cuda", "xpu", torch._C._get_privateuse1_backend_name()):
        with contextlib.suppress(Exception):  # this build has no such devices, or they are somebody's own
            module = getattr(torch, kind)
            if module.is_initialized():
                return f"{kind}:{module.current_device()}"
    return os.environ.get(DEVICE, "")


def end_groups() -> None:
    """Destroy all process groups; remains of a failed start-up would block the next one forever.

    Torch names groups by counting them, and takes that back only when it destroys a group that was created.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    c10d._world.group_count = 0


def _is_open(store: Any) -> bool:
    try:
        return bool(store.num_keys() >= 0)
    except RuntimeError:
        return False


def environment() -> dict[str, str]:
    """The variables that matter to a distributed run, bounded."""
    chosen = sorted(n for n in os.environ if n.startswith(ENVIRONMENT) and not n.startswith(_OURS))
    return {name: os.environ[name][:200] for name in chosen[:100]}


def _attempts_before(method: str) -> int:
    """How often torchrun has started the ranks before, where they use the store of its agent, which outlives them."""
    of_agent = method == "env://" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(count) if of_agent and count.isdecimal() else 0


def versions() -> dict[str, str]:
    """What must be the same on all ranks."""
    torch_version = os.environ.get(PRETENDED_VERSION) or str(torch.__version__)
    found = {"torch": torch_version, "python": ".".join(map(str, sys.version_info[:3]))}
    if torch.version.cuda:
        found["cuda"] = str(torch.version.cuda)
        found["nccl"] = ".".join(map(str, nccl.version())) if dist.is_nccl_available() else ""
    return found


def _seconds(timeout: Any) -> float | None:
    """A time-out in seconds; None: the default was left."""
    return timeout.total_seconds() if isinstance(timeout, timedelta) else None


def _with_chosen_backend(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with the backend chosen at launch; a different one is reported once."""
    chosen = os.environ.get(BACKEND)
    asked = args[0] if args else kwargs.get("backend")
    if not chosen or str(asked).lower() not in ("nccl", "gloo") or str(asked).lower() == chosen:
        return args, kwargs
    if os.environ.get("RANK") == "0":
        print(f"ddpnb: warning: the script asks for {asked}; it runs on {chosen}.", file=sys.stderr, flush=True)
    if args:
        return (chosen, *args[1:]), kwargs
    return args, {**kwargs, "backend": chosen}


def _address(method: str) -> str:
    """The rendezvous address, if known."""
    if method.startswith("env://"):
        return f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    return method.split("?", maxsplit=1)[0]
