"""The start-up steps of a rank, one by one; failed steps can be repeated.

Each is what a training script does, by the same functions of torch; nothing here is a stand-in. The
store and the process group are made apart, so that a rank can be seen waiting in each.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.nn.parallel import DistributedDataParallel

from ddpnb.recorder.collectives.phases import end_groups, environment, versions
from ddpnb.recorder.holds.release import Release
from ddpnb.recorder.process.process_state import set_variables
from ddpnb.recording.protocol import DEVICE
from ddpnb.recording.startup import STEPS
from ddpnb.texts import shortened

_KNOCK_S = 0.1  # between two tries to reach the store
_GONE_S = 1.0
_WIDTH = 16
_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")


class RankStartup:
    """The start-up of this rank.

    Args:
        release: interrupts the retries to connect.
    """

    def __init__(self, release: Release) -> None:
        self._release = release
        self._steps: dict[str, Callable[[], dict[str, Any]]] = dict(
            zip(
                STEPS,
                (
                    self._environment, self._device, self._store, self._group, self._barrier, self._all_reduce,
                    self._model, self._wrap, self._forward, self._backward, self._optimizer,
                ),
                strict=True,
            )
        )  # fmt: skip
        self._before: dict[str, str | None] = {}  # what was set before the last step
        self._timeout = timedelta(minutes=30)
        self._backend: str | None = None
        self._numbers: dict[str, int] = {}
        self._the_store: Any = None
        self._on = torch.device("cpu")
        self._net: Any = None
        self._ddp: Any = None
        self._loss: Any = None

    def begin(self) -> None:
        """Forget the results of an earlier start-up."""
        self._set({})
        self._the_store = self._net = self._ddp = self._loss = None

    def step(self, name: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Make one step; its facts, or the error. Never raises.

        ``order``: environment (variables to set; None takes one away), backend (null: torch chooses), timeout (seconds).
        """
        began = time.monotonic()
        try:
            self._set(order["environment"])
            self._timeout = timedelta(seconds=float(order["timeout"]))
            self._backend = str(order["backend"]) if order["backend"] else None
            if name in ("store", "process group"):  # a cached value may be outdated
                self._environment()
            facts = self._steps[name]()
            return {"state": "done", "facts": facts, "error": "", "seconds": time.monotonic() - began}
        except Exception as error:
            converted = self._release.convert(error)
            if name in ("store", "process group"):
                end_groups()
                self._the_store = None
            text = shortened(
                f"{type(converted).__name__}: {str(converted).splitlines()[0] if str(converted) else ''}", 400
            )
            del converted  # its traceback holds this frame, and so would keep the store and its port
            return {"state": "failed", "facts": {}, "error": text, "seconds": time.monotonic() - began}

    def _set(self, variables: Mapping[str, str | None]) -> None:
        """Set these variables (None takes one away), and put back those of the step before."""
        set_variables(self._before)
        self._before = {name: os.environ.get(name) for name in variables}
        set_variables(variables)

    # -- the steps

    def _environment(self) -> dict[str, Any]:
        missing = [name for name in (*_NUMBERS, "MASTER_ADDR") if not os.environ.get(name)]
        if missing:
            raise ValueError(f"the environment has no {', '.join(missing)}")
        for name in _NUMBERS:
            try:
                self._numbers[name] = int(os.environ[name])
            except ValueError:
                raise ValueError(f"{name}={os.environ[name]!r} is not a number") from None
        rank, size = self._numbers["RANK"], self._numbers["WORLD_SIZE"]
        if not 0 <= rank < size:
            raise ValueError(f"RANK={rank} is out of range for WORLD_SIZE={size}")
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        return {**environment(), "address": address}

    def _device(self) -> dict[str, Any]:
        wanted = os.environ.get(DEVICE, "cpu")
        self._on = torch.device(wanted)
        facts: dict[str, Any] = {"device": wanted, **versions(), "threads": torch.get_num_threads(), "pid": os.getpid()}
        if self._on.type == "cuda":
            torch.cuda.set_device(self._on)
            free, total = torch.cuda.mem_get_info(self._on)
            facts |= {"name": torch.cuda.get_device_name(self._on), "free": free, "memory": total}
        torch.ones(1, device=self._on)
        return facts

    def _store(self) -> dict[str, Any]:
        end_groups()  # of a start-up that was released: it begins again from here
        self._the_store = None
        host, port = os.environ["MASTER_ADDR"], self._numbers["MASTER_PORT"]
        rank, size = self._numbers["RANK"], self._numbers["WORLD_SIZE"]
        if rank != 0:
            self._knock(host, port)
        # Without the wait in the constructor: nobody could be freed from it once the store is shut.
        self._the_store = TCPStore(host, port, size, rank == 0, self._timeout, wait_for_workers=False)
        self._the_store.set(f"ddpnb/here/{rank}", socket.gethostname())
        wanted = range(size) if rank == 0 else range(1)
        peers = {str(other): self._the_store.get(f"ddpnb/here/{other}").decode("utf-8", "replace") for other in wanted}
        return {"address": f"{host}:{port}", "role": "holds it" if rank == 0 else "uses it", "peers": peers}

    def _knock(self, host: str, port: int) -> None:
        """Wait until the port accepts connections: the retries of torch's own client cannot be interrupted."""
        deadline = time.monotonic() + self._timeout.total_seconds()
        why = ""
        while time.monotonic() < deadline:
            if self._release.wanted:
                raise self._release.exception()
            try:
                with socket.create_connection((host, port), timeout=_GONE_S):
                    return
            except OSError as error:
                why = str(error)
            time.sleep(_KNOCK_S)
        raise TimeoutError(f"no answer from {host}:{port} ({why})")

    def _group(self) -> dict[str, Any]:
        rank, size = self._numbers["RANK"], self._numbers["WORLD_SIZE"]
        dist.init_process_group(
            self._backend,
            store=PrefixStore("ddpnb/group", self._the_store),
            rank=rank,
            world_size=size,
            timeout=self._timeout,
        )
        group = dist.group.WORLD
        return {
            "backend": str(dist.get_backend()),
            "rank": dist.get_rank(),
            "size": dist.get_world_size(),
            "time-out": f"{self._timeout.total_seconds():g} s",
            "group": str(getattr(group, "group_desc", "")),
        }

    def _barrier(self) -> dict[str, Any]:
        began = time.perf_counter()
        dist.barrier()
        return {"took": f"{(time.perf_counter() - began) * 1e3:.2f} ms"}

    def _all_reduce(self) -> dict[str, Any]:
        size = dist.get_world_size()
        summed = torch.full((4,), float(dist.get_rank() + 1), device=self._on)
        began = time.perf_counter()
        dist.all_reduce(summed)
        got, expected = summed[0].item(), size * (size + 1) / 2
        if got != expected:
            raise ValueError(f"the sum over the ranks is {got:g}, it should be {expected:g}")
        return {"sum": got, "took": f"{(time.perf_counter() - began) * 1e3:.2f} ms"}

    def _model(self) -> dict[str, Any]:
        self._net = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 1)).to(self._on)
        return {"parameters": sum(p.numel() for p in self._net.parameters()), "on": str(self._on)}

    def _wrap(self) -> dict[str, Any]:
        on_cuda = self._on.type == "cuda"
        self._ddp = DistributedDataParallel(self._net, device_ids=[self._on.index] if on_cuda else None)
        return {"wrapper": "DistributedDataParallel", "device_ids": str(self._ddp.device_ids)}

    def _forward(self) -> dict[str, Any]:
        self._loss = self._ddp(torch.randn(8, _WIDTH, device=self._on)).square().mean()
        return {"loss": round(self._loss.item(), 6)}

    def _backward(self) -> dict[str, Any]:
        self._loss.backward()
        norm = torch.cat([p.grad.flatten() for p in self._net.parameters()]).norm().item()
        return {"averaged gradient": round(norm, 6)}

    def _optimizer(self) -> dict[str, Any]:
        torch.optim.SGD(self._net.parameters(), lr=0.1).step()
        return {"parameters": round(sum(p.sum().item() for p in self._net.parameters()), 5)}
