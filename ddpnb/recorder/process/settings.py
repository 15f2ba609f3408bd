"""Settings of the process that a script may change: the next one finds them as in a process of its own."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch


class Settings:
    """The settings of torch and of the standard library as they are when this is made: before any script."""

    def __init__(self) -> None:
        self._before: list[tuple[Callable[[], Any], Callable[[Any], Any], Any]] = [
            (read, write, read()) for read, write in _SETTINGS
        ]
        self._handlers = list(logging.root.handlers)

    def restore(self) -> None:
        """Put back what was changed; what cannot be put back stays."""
        for read, write, before in self._before:
            with suppress(Exception):
                if read() != before:
                    write(before)
        for handler in [handler for handler in logging.root.handlers if handler not in self._handlers]:
            logging.root.removeHandler(handler)  # logging.basicConfig() does nothing where there is one


def _deterministic(mode: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(mode[0], warn_only=mode[1])


def _default_device() -> Any:
    # Nobody has set one; to ask torch would load this module.
    if "torch.utils._device" in sys.modules:
        with suppress(AttributeError):  # torch 2.9, after the last one was taken back
            return torch.get_default_device()
    return torch.device("cpu")


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (_default_device, lambda _device: torch.set_default_device(None)),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        _deterministic,
    ),
    (torch.multiprocessing.get_sharing_strategy, torch.multiprocessing.set_sharing_strategy),
    (
        lambda: multiprocessing.get_start_method(allow_none=True),
        lambda method: multiprocessing.set_start_method(method, force=True),
    ),
    (lambda: logging.root.level, logging.root.setLevel),
    (lambda: logging.root.manager.disable, logging.disable),
    (gc.isenabled, lambda enabled: gc.enable() if enabled else gc.disable()),
    (gc.get_threshold, lambda threshold: gc.set_threshold(*threshold)),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.getswitchinterval, sys.setswitchinterval),
    (socket.getdefaulttimeout, socket.setdefaulttimeout),
    (lambda: sys.unraisablehook, lambda hook: setattr(sys, "unraisablehook", hook)),
    (lambda: threading.excepthook, lambda hook: setattr(threading, "excepthook", hook)),
    (_umask, os.umask),
)
