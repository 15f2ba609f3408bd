"""A device in Python: each tensor has its data in a tensor on the CPU, and one thread, the stream, computes with it.

Of each operation the host knows only shapes and types. It continues at once, as with a GPU, and blocks where it needs a value:
``item()``, a copy to the CPU, ``synchronize()``. It blocks in C++ there, where no signal of Python's interrupts it. An error on
the stream is raised where the host blocks next.

Made for tests: layouts other than dense ones are not supported.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

# torch computes these by another one into an empty tensor, whose size only a device in C++ can change.
_WHOLE = ("abs", "mse_loss", "sgn", "angle")
_installed: list[str] = []
_library: list[Any] = []


class Stream:
    """The queue of the device, and the thread that takes from it; a forked process gets a new one."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="device stream", daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None]) -> None:
        """Queue something; the host does not wait for it."""
        self._queue.put(work)

    def _run(self) -> None:
        while True:
            try:
                self._queue.get()()
            except BaseException as error:  # noqa: BLE001 (as on a GPU it is raised where the host waits)
                self.error = self.error or error

    def synchronize(self) -> None:
        """Block the host until all that is queued now is done.

        Raises:
            RuntimeError: what went wrong on the stream since the last time.
        """
        done: torch.futures.Future[None] = torch.futures.Future()
        self._queue.put(lambda: done.set_result(None))
        done.wait()
        error, self.error = self.error, None
        if error is not None:
            raise RuntimeError(f"device error: {error}") from error


_streams: dict[int, Stream] = {}  # by process: threads do not survive a fork
_starting = threading.Lock()


def stream() -> Stream:
    """The stream of this process."""
    with _starting:
        if os.getpid() not in _streams:
            _streams.clear()
            _streams[os.getpid()] = Stream()
        return _streams[os.getpid()]


def synchronize(_device: Any = None) -> None:
    """Block the host until the device has done what is queued."""
    stream().synchronize()


def host(tensor: torch.Tensor) -> torch.Tensor:
    """The data of a tensor, for the stream alone."""
    return tensor.untyped_storage()._host  # type: ignore[attr-defined]


def on_device(data: torch.Tensor) -> torch.Tensor:
    """A tensor of the device with this data."""
    tensor = torch._C._acc.create_empty_tensor(list(data.shape), data.dtype)  # type: ignore[attr-defined]
    tensor.untyped_storage()._host = data  # type: ignore[attr-defined] (shallow copies share the storage)
    return tensor


def _is_ours(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == _installed[0]


def _hosted(value: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda one: host(one) if _is_ours(one) else one, value)


def _without_data(value: Any) -> Any:
    return tree_map_only(
        torch.Tensor, lambda one: torch.empty_like(host(one), device="meta") if _is_ours(one) else one, value
    )


def _any_operation(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Every operation on tensors of the device that has no function of its own here."""
    schema = op._schema
    given = {argument.name: value for argument, value in zip(schema.arguments, args, strict=False)} | kwargs
    if "device" in given:
        kwargs["device"] = torch.device("cpu")
    here, there = _hosted((args, kwargs))
    written = [argument.name for argument in schema.arguments if argument.alias_info and argument.alias_info.is_write]
    aliased = any(argument.alias_info for argument in schema.arguments)
    if written:
        stream().put(lambda: op(*here, **there))
        results = [given[name] for name in written]
        return results[0] if len(schema.returns) == 1 else tuple(results[: len(schema.returns)])
    if aliased or not any(_is_ours(value) for value in _tensors(args)):  # a view, or a new tensor without values
        return tree_map_only(torch.Tensor, on_device, op(*here, **there))
    try:
        shapes = op(*_without_data(args), **(_without_data(kwargs) | ({"device": "meta"} if "device" in given else {})))
    except NotImplementedError:  # its size depends on values
        synchronize()
        return tree_map_only(torch.Tensor, on_device, op(*here, **there))
    made = tree_map_only(torch.Tensor, lambda one: torch.empty(one.shape, dtype=one.dtype), shapes)

    def compute() -> None:
        for target, value in zip(_tensors(made), _tensors(op(*here, **there)), strict=True):
            target.copy_(value)

    stream().put(compute)
    return tree_map_only(torch.Tensor, on_device, made)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [one for one in torch.utils._pytree.tree_leaves(value) if isinstance(one, torch.Tensor)]


def _item(tensor: torch.Tensor) -> Any:
    data = host(tensor)
    synchronize()
    return data.item()


def _copy_from(source: torch.Tensor, target: torch.Tensor, _non_blocking: bool = False) -> torch.Tensor:
    if not _is_ours(target):
        data = host(source)
        synchronize()
        target.copy_(data)
    elif _is_ours(source):
        data, place = host(source), host(target)
        stream().put(lambda: place.copy_(data))
    else:
        data, place = source.detach().clone(), host(target)  # as from memory that is not page-locked
        stream().put(lambda: place.copy_(data))
    return target


def as_library(module: dict[str, Any]) -> None:
    """Let the functions of a module look as if they lay beside torch: their frames are not the user's."""
    place = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "npu", os.path.basename(module["__file__"]))
    for value in list(module.values()):
        for one in vars(value).values() if isinstance(value, type) else (value,):
            function = getattr(one, "fget", one)
            if isinstance(function, FunctionType) and function.__module__ == module["__name__"]:
                function.__code__ = function.__code__.replace(co_filename=place)


def install(name: str) -> None:
    """Register the device; once is enough."""
    if _installed:
        return
    _installed.append(name)
    as_library(globals())
    module = ModuleType(f"torch.{name}")
    module.__dict__.update(
        is_available=lambda: True, is_initialized=lambda: True, device_count=lambda: 1, current_device=lambda: 0,
        set_device=lambda _device: None, synchronize=synchronize, manual_seed_all=lambda _seed: None,
        _is_in_bad_fork=lambda: False,
    )  # fmt: skip
    _setup_privateuseone_for_python_backend(name, backend_module=module)
    for_all, own = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    for_all.fallback(_any_operation, "PrivateUse1")
    own.impl("_local_scalar_dense", _item, "PrivateUse1")
    own.impl("_copy_from", _copy_from, "PrivateUse1")
    for each in _WHOLE:
        own.impl(each, partial(_any_operation, getattr(torch.ops.aten, each).default), "PrivateUse1")
    _library.extend((for_all, own))
