"""Faults in the data and its loaders."""

from __future__ import annotations

import itertools
import math
import os
import signal
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as trees
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, dataloader

from ddpnb.recorder.events.bindings import homes_of_manual_seed
from ddpnb.recorder.faults.torch_hooks import FaultHooks
from ddpnb.recorder.files.blackbox import BlackBox

_OF_WORKERS = ("stalled worker", "killed worker")


class InData(FaultHooks):
    """The faults of data loaders, samplers and random numbers."""

    def __init__(self, box: BlackBox, rank: int) -> None:
        super().__init__(box, rank)
        self._fewer: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        self.before(DataLoader, "__iter__", self._before_loop)
        self.replace(BatchSampler, "__len__", self._length)
        self.replace(BatchSampler, "__iter__", self._batches)
        self.before(DistributedSampler, "__iter__", self._before_pass)
        self.replace(DistributedSampler, "set_epoch", self._set_epoch)
        self.replace(dataloader._BaseDataLoaderIter, "__next__", self._next)
        for owner in homes_of_manual_seed():
            self.replace(owner, "manual_seed", self._seed)

    # -- how many batches

    def _before_loop(self, loader: Any) -> None:
        if not loader.num_workers:
            for kind in _OF_WORKERS:
                self.unable(kind, "the data loader has no workers")
        if not self.wanted("shorter shard"):
            return
        count = _count(loader)
        if not count:
            self.unable("shorter shard", "the number of batches of the data loader is unknown")
            return
        for armed in self.due_once("shorter shard", loader):
            fewer = min(max(1, int(armed.fault.value("batches"))), count - 1)
            self._fewer[loader.batch_sampler] = fewer
            self.on_heal(armed, loader.batch_sampler, lambda sampler: self._fewer.pop(sampler, None))

    def _length(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda batches: original(batches) - (self._fewer.get(batches, 0) if self._fewer else 0)

    def _batches(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __iter__(batches: Any) -> Any:
            whole = original(batches)
            return itertools.islice(whole, len(batches)) if self._fewer and batches in self._fewer else whole

        return __iter__

    # -- which samples

    def _before_pass(self, sampler: Any) -> None:
        if not sampler.rank:
            self.unable("same shard", "this rank already has rank 0's shard")
        else:
            for armed in self.due_once("same shard", sampler):
                own, sampler.rank = sampler.rank, 0
                self.on_heal(armed, sampler, lambda s, own=own: setattr(s, "rank", own))
        if not sampler.shuffle:
            self.unable("other shuffle", "the sampler does not shuffle")
        else:
            for armed in self.due_once("other shuffle", sampler):
                own, sampler.seed = sampler.seed, sampler.seed + 1
                self.on_heal(armed, sampler, lambda s, own=own: setattr(s, "seed", own))

    def _set_epoch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda sampler, epoch: None if self.due_since("epoch not set") else original(sampler, epoch)

    def _seed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda seed: original(int(seed) + len(self.due("reseeded")))

    # -- what comes of a loader

    def _next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __next__(iterator: Any) -> Any:
            if isinstance(iterator, dataloader._MultiProcessingDataLoaderIter):
                self._trigger_in_worker(iterator)
            batch = original(iterator)
            return self._spoiled(batch) if self.wanted("bad sample") else batch

        return __next__

    def _trigger_in_worker(self, iterator: Any) -> None:
        worker = _at_work(iterator) if any(map(self.wanted, _OF_WORKERS)) else None
        if worker is None:
            return
        for armed in self.due(*_OF_WORKERS):
            if armed.fault.kind == "stalled worker":
                os.kill(worker.pid, signal.SIGSTOP)
                self.on_heal(armed, worker, _continue)
            else:
                os.kill(worker.pid, signal.SIGKILL)
                # torch learns it from a signal, whose handler raises: here, and not anywhere later.
                os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)

    def _spoiled(self, batch: Any) -> Any:
        leaves, kind = trees.tree_flatten(batch)
        place = next((i for i, leaf in enumerate(leaves) if _holds_numbers(leaf)), None)
        if place is None:
            self.unable("bad sample", "the batch contains no floating-point tensor")
        elif self.due("bad sample"):
            leaves[place] = leaves[place].clone()  # the data set may have given its own
            leaves[place].view(-1)[0] = math.nan
            return trees.tree_unflatten(leaves, kind)
        return batch


def _count(loader: Any) -> int:
    """How many batches the loader has, where torch itself decides on it; else 0."""
    batches = loader.batch_sampler
    if not isinstance(batches, BatchSampler) or type(batches).__iter__ is not BatchSampler.__iter__:
        return 0
    try:
        return len(batches)
    except TypeError:  # of an iterable data set
        return 0


def _at_work(iterator: Any) -> Any:
    """The worker that has the next batch still in hand, if there is one."""
    awaited = [state for _, state in sorted(iterator._task_info.items()) if len(state) == 1]
    return iterator._workers[awaited[0][0]] if awaited else None


def _continue(worker: Any) -> None:
    if worker.is_alive():
        os.kill(worker.pid, signal.SIGCONT)


def _holds_numbers(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 0
