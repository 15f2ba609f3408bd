"""Communication of this process that does not pass the door: groups that are written in Python, and libraries beside torch.

It is noticed by the classes, modules and files that are loaded, when somebody looks; whether a thread is in it is seen by its
frames. Nothing is imported, and nothing of the user's is called.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, ProcessGroup, Work

from ddpnb.recorder.stacks.user_frames import file_of, is_own_file, is_torch_file
from ddpnb.recording.names import one_line
from ddpnb.recording.stacks import MAX_UNSEEN, UNRECORDED_WORK

_TEXT = 80
_MAPS_S, _MAPS = 3.0, 4 << 20  # between two looks at the files, and bytes that are read
_SYMMETRIC = "symmetric memory of torch"
#: modules, and what a reader calls them: ``{}`` is the package
_MODULES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"(\w+)\..*\bpynccl(_wrapper)?", "pynccl of {}"),
        (r"(\w+)\..*\b(custom|quick)_all_?reduce", "custom all-reduce of {}"),
        (r"cupy\.cuda\.nccl|cupy_backends\.cuda\.libs\.nccl|cupyx\.distributed", "NCCL of CuPy"),
        (r"nccl", "NCCL4Py"),
        (r"nvshmem|pynvshmem", "NVSHMEM"),
        (r"torch\.distributed\._symmetric_memory", _SYMMETRIC),
        (r"torchcomms", "torchcomms"),
        (r"torchft", "torchft"),
        (r"mpi4py", "mpi4py"),
        (r"horovod", "Horovod"),
        (r"deep_ep", "DeepEP"),
        (r"ucp|ucxx", "UCX"),
        (r"mscclpp", "MSCCL++"),
        (r"nixl", "NIXL"),
        (r"flashinfer\.comm", "flashinfer.comm"),
        (r"ray\.util\.collective", "ray.util.collective"),
        (r"pygloo", "pygloo"),
    )
)
#: files, where neither torch nor a module above has loaded them
_FILES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"libmpi(_cxx)?\.so", "MPI"),
        (r"libnvshmem(_host)?\.so", "NVSHMEM"),
        (r"libmscclpp\.so", "MSCCL++"),
        (r"libhorovod|mpi_lib_v2", "Horovod"),
    )
)
_NCCL = re.compile(r"lib(nccl|rccl)\.so")
_OF_TORCH = (os.path.join(os.path.dirname(torch.__file__), ""), f"{os.sep}nvidia{os.sep}")


def noticed() -> list[str]:
    """What communicates in this process beside the door, as far as is known: that it is loaded, not that it is used."""
    found: dict[str, None] = {}
    with contextlib.suppress(Exception):
        for kind in _subclasses(ProcessGroup):
            module = kind.__module__
            if not module.startswith("torch."):
                found[_of_class(kind) if module == "__main__" else f"process groups in Python ({_root(module)})"] = None
    for name, module in list(sys.modules.items()):
        known = _of_module(name)
        if known and module is not None and (known != _SYMMETRIC or _has_symmetric_memory(module)):
            found[known] = None
    found.update(dict.fromkeys(_files()))
    return [one_line(name[:_TEXT]) for name in found][:MAX_UNSEEN]


def part_of(frame: FrameType, *, user: bool, inner: bool) -> str:
    """The communication that a frame belongs to; empty if it belongs to none.

    Args:
        frame: of any thread.
        user: it runs the user's own code.
        inner: a frame further in runs the user's own code: a library that has called it does not communicate.
    """
    file = file_of(frame)
    if is_own_file(file):
        return UNRECORDED_WORK if frame.f_code.co_name == "watched_wait" else ""
    module = frame.f_globals.get("__name__")
    known = _of_module(module) if type(module) is str else ""
    code = frame.f_code
    if code.co_argcount and (user or not is_torch_file(file)):
        with contextlib.suppress(Exception):
            kind = type(frame.f_locals.get(code.co_varnames[0]))
            if issubclass(kind, (ProcessGroup, Backend, Work)):
                return _of_class(kind)
    return "" if inner else known


def _of_class(kind: type) -> str:
    name = type.__getattribute__(kind, "__name__")
    what = "group" if issubclass(kind, ProcessGroup) else "backend" if issubclass(kind, Backend) else "Work"
    return one_line(f"{name[: _TEXT // 2]} (a {what} in Python)")


def _root(module: str) -> str:
    return module.partition(".")[0]


def _subclasses(kind: type) -> Iterator[type]:
    for one in type.__subclasses__(kind):
        yield one
        yield from _subclasses(one)


@lru_cache(1 << 14)
def _of_module(name: str) -> str:
    """What a module or one that it lies in is called; empty if it does not communicate."""
    for pattern, known in _MODULES:
        found = pattern.match(name)
        if found and name[found.end() : found.end() + 1] in ("", "."):
            return known.format(_root(name))
    return ""


def _has_symmetric_memory(module: Any) -> bool:
    """torch imports the module by itself: what it keeps says whether there is any."""
    held = ("_group_name_to_store", "_group_name_to_workspace_tensor", "_symm_mem_pools", "_backend_streams")
    return any(vars(module).get(name) for name in held)


_files_seen: tuple[float, tuple[str, ...]] = -_MAPS_S, ()
_code_seen = -1  # kB of library code when the files were read


def _files() -> tuple[str, ...]:
    """The same by the files that are loaded, which may be used without Python."""
    global _files_seen, _code_seen
    now = time.monotonic()
    if now - _files_seen[0] >= _MAPS_S:
        # To read the files costs so much that a rank which waits would seem to compute: only where some were loaded since.
        code, before = _library_code(), _code_seen
        _files_seen = now, _files_seen[1] if code == before >= 0 else tuple(_named(_loaded()))
        _code_seen = code
    return _files_seen[1]


def _library_code() -> int:
    """How much code of libraries is loaded, in kB; -1: not known."""
    with contextlib.suppress(OSError, ValueError, StopIteration), open("/proc/self/status", "rb") as file:
        return int(next(line for line in file if line.startswith(b"VmLib:")).split()[1])
    return -1


def _loaded() -> set[str]:
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        lines = file.read(_MAPS).splitlines()
        return {line.split(maxsplit=5)[-1] for line in lines if ".so" in line}
    return set()


def _named(paths: set[str]) -> Iterator[str]:
    nccl = sorted(path for path in paths if _NCCL.match(os.path.basename(path)))
    if len(nccl) > 1:
        yield "a second NCCL"
    for path in sorted(paths):
        if not any(part in path for part in _OF_TORCH):
            yield from (name for pattern, name in _FILES if pattern.match(os.path.basename(path)))
