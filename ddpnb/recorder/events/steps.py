"""Where a step's time goes: marks after backward passes and optimizer steps, and the time inside data loaders.

Nothing here passes the door. A step costs a few microseconds: three readings of clocks, and two more
per batch.
"""

from __future__ import annotations

import threading
from _thread import get_ident
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, dataloader

from ddpnb.recorder.events.hooks import Hooks, hide
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.files.clock import now_ns
from ddpnb.recording.blackbox import MARK_BACKWARD


class Steps(Hooks):
    """Marks in the black box at every backward pass and optimizer step.

    DDP waits for its collectives in C++ at the end of ``backward()``: a mark after it says when that wait
    ended.
    """

    def __init__(self, box: BlackBox) -> None:
        super().__init__(box)
        self._inside_data: list[bool] = []  # shared by the wrappers: a data set may read from a loader of its own

    def install(self) -> None:
        hook = register_optimizer_step_post_hook(hide(self._step()))
        self.on_removal(hook.remove)
        self.replace(torch.autograd, "backward", self._backward)
        # next() of a loader, and iter(), which starts its workers.
        self.replace(dataloader._BaseDataLoaderIter, "__next__", self._data)
        self.replace(DataLoader, "__iter__", self._data)

    def _step(self) -> Callable[..., None]:
        step, threads = self.box.step, torch.get_num_threads

        def stepped(*_: Any) -> None:
            try:
                step(threads())
            except Exception:
                self.fail()

        return stepped

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        mark, main = self.box.mark, threading.main_thread().ident
        inside: list[bool] = []  # checkpointing runs one backward pass inside another

        def backward(*args: Any, **kwargs: Any) -> Any:
            if inside or get_ident() != main:
                return original(*args, **kwargs)
            inside.append(True)
            try:
                result = original(*args, **kwargs)
            finally:
                inside.clear()
            try:
                mark(MARK_BACKWARD)
            except Exception:
                self.fail()
            return result

        return hide(backward)

    def _data(self, original: Callable[..., Any]) -> Callable[..., Any]:
        box, main, now = self.box, threading.main_thread().ident, now_ns
        inside = self._inside_data

        def data(loader: Any) -> Any:
            if inside or get_ident() != main:
                return original(loader)
            inside.append(True)
            began, held_ns = now(), box.held_ns
            try:
                return original(loader)
            finally:
                box.data_ns += now() - began - max(0, box.held_ns - held_ns)
                inside.clear()

        return hide(data)
