"""What a rank trains on: its data sets, samplers, data loaders, and the loops over them.

Of each data set and loader one event, of each loop over a loader one phase, of each pass of a
DistributedSampler one event; all of it bounded, so that nothing else is pushed out of the black box.
Batches are counted, not recorded. Nothing is ever written into an object of the user's: loaders,
samplers and data sets are pickled and copied, so what is known of them is kept beside them.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data.dataloader as loading
from torch.distributed.algorithms.join import Join
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from ddpnb.recorder.events import dataset_fingerprint
from ddpnb.recorder.events.dataset_fingerprint import own_attributes
from ddpnb.recorder.events.hooks import Hooks, place
from ddpnb.recorder.events.inputs import describe, structure
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.events.data import DataLoop, JoinEntered, LoaderMade, LoaderSeen, SamplerMade, SamplerPass

LOOPS, LOOPS_EACH = 48, 8  # that are recorded: in all, and of one loader
PASSES, PASSES_EACH = 32, 8  # of samplers, likewise
LOADERS, DATASETS = 16, 16
MADE = 48  # samplers and loaders of which it is recorded where they were made
_LOOKED_AT, _KINDS, _KIND_TEXT = 512, 4, 300  # batches of a loop whose structure is looked at; how many are kept
_HEADS = 4  # batches of a loop of which a digest is kept
_DRAWING = (RandomSampler, SubsetRandomSampler)  # their order follows from the state of a generator
_OWN_LENGTH = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class SamplerState:
    """How often a sampler was iterated, and the calls of ``set_epoch``."""

    def __init__(self) -> None:
        self.turn = self.told = 0
        self.epoch: Any = None


class OpenLoop:
    """One iteration over a loader, from ``iter()`` until it is exhausted or dropped."""

    def __init__(self, event: int, steps: int, sampler: tuple[int, SamplerState] | None) -> None:
        self.event = event  # its number
        self.began = steps  # optimizer steps when it began
        self.sampler = sampler  # its number and passes; the sampler itself may go
        self.batches = 0
        self.kinds: dict[str, int] = {}  # structures of its batches: the first of each
        self.heads: list[float] = []  # digests of the first of them
        self.steps = 0  # optimizer steps in it, once it is dropped
        self.reference: Any = None


class Known:
    """Numbers of objects in the order in which they were first seen, kept apart from the objects."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._of: dict[int, tuple[Any, int, Any]] = {}
        self._make = make
        self.count = 0

    def __call__(self, thing: Any) -> tuple[int, Any, bool]:
        """Number (-1: it cannot be followed), what is kept of it, whether it is new."""
        key = id(thing)
        found = self._of.get(key)
        if found is not None and found[0]() is thing:
            return found[1], found[2], False
        try:
            reference = weakref.ref(thing, lambda _: self._of.pop(key, None))
        except TypeError:
            return -1, self._make(), True
        number, self.count = self.count, self.count + 1
        self._of[key] = (reference, number, self._make())
        return number, self._of[key][2], True

    def number(self, thing: Any) -> int:
        """Its number; -1: it was not seen."""
        found = self._of.get(id(thing))
        return found[1] if found is not None and found[0]() is thing else -1

    def clear(self) -> None:
        self._of.clear()
        self.count = 0


class Data(Hooks):
    """The hooks on data loaders and samplers."""

    def __init__(self, box: BlackBox) -> None:
        super().__init__(box)
        self._loaders, self._samplers, self._datasets = Known(list), Known(SamplerState), Known(list)
        self._made = Known(list)
        self._loops: dict[int, OpenLoop] = {}  # by the id of the iterator
        self._dropped: deque[OpenLoop] = deque()
        self._steps = self._loop_count = self._pass_count = 0
        #: called after each batch of a loader; they raise nothing of their own
        self.on_batch: list[Callable[[], None]] = []

    def install(self) -> None:
        self.after(DistributedSampler, "__init__", self._sampler_made)
        self.after(DataLoader, "__init__", self._loader_made)
        self.before(DistributedSampler, "set_epoch", self._epoch_set)
        self.after(DistributedSampler, "__iter__", self._pass_begins)
        self.after(DataLoader, "__iter__", self._loop_begins)
        self.replace(loading._BaseDataLoaderIter, "__next__", self._next)
        self.before(Join, "__enter__", self._joined)
        self.on_removal(register_optimizer_step_post_hook(self._stepped).remove)

    def new_run(self) -> None:
        super().new_run()
        for known in (self._loaders, self._samplers, self._datasets, self._made):
            known.clear()
        self._loops.clear()
        self._dropped.clear()
        self._steps = self._loop_count = self._pass_count = 0

    def finish(self) -> None:
        """The script has ended: so have its loops, also those that it left early."""
        self.guarded(self._finish)()

    # -- what is called in every step

    def _stepped(self, *_: Any) -> None:
        self._steps += 1

    def _next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        loops, over, look = self._loops, self.guarded(self._loop_over), self.guarded(self._batch)
        on_batch = self.on_batch

        def __next__(iterator: Any) -> Any:
            try:
                batch = original(iterator)
            except StopIteration:
                over(iterator)
                raise
            loop = loops.get(id(iterator))
            if loop is not None:
                loop.batches += 1
                if loop.batches <= _LOOKED_AT:
                    look(loop, batch)
            for told in on_batch:
                told()
            return batch

        return __next__

    def _batch(self, loop: OpenLoop, batch: Any) -> None:
        kind = structure(batch)[:_KIND_TEXT]
        if kind not in loop.kinds and len(loop.kinds) < _KINDS:
            loop.kinds[kind] = loop.batches
        if len(loop.heads) < _HEADS:
            loop.heads.append(describe(batch, {})[1])

    # -- loops

    def _loop_begins(self, iterator: Any, loader: Any) -> None:
        self._close_dropped()
        before = self._loops.pop(id(iterator), None)  # persistent workers: one iterator for all epochs
        if before is not None:
            self._close(before, complete=False)
        number, begun, new = self._loaders(loader)
        if new:
            self._describe_loader(number, loader)
        begun.append(None)
        if not 0 <= number < LOADERS or len(begun) > LOOPS_EACH or self._loop_count >= LOOPS:
            return
        self._loop_count += 1
        sampler, _ = _sampler_of(own_attributes(loader))
        distributed = isinstance(sampler, DistributedSampler)
        passes = self._samplers(sampler)[:2] if distributed else None
        begins = DataLoop(loader=number, turn=len(begun), step=self._steps, rng=_state(sampler), site=place())
        loop = OpenLoop(self.box.begin(begins), self._steps, passes)
        key = id(iterator)
        loop.reference = weakref.ref(iterator, lambda _: self._drop(key))
        self._loops[key] = loop

    def _drop(self, key: int) -> None:
        """An iterator is gone. This may be the garbage collector, anywhere: nothing is recorded here."""
        loop = self._loops.pop(key, None)
        if loop is not None:
            loop.steps = self._steps - loop.began
            self._dropped.append(loop)

    def _loop_over(self, iterator: Any) -> None:
        loop = self._loops.pop(id(iterator), None)
        if loop is not None:
            self._close(loop, complete=True)

    def _close_dropped(self) -> None:
        while self._dropped:
            loop = self._dropped.popleft()
            self._close(loop, complete=False, steps=loop.steps)

    def _finish(self) -> None:
        self._close_dropped()
        for key in list(self._loops):
            loop = self._loops.pop(key, None)
            if loop is not None:
                self._close(loop, complete=False)

    def _close(self, loop: OpenLoop, *, complete: bool, steps: int | None = None) -> None:
        loop.reference = None
        steps = self._steps - loop.began if steps is None else steps
        sampler, passed = (loop.sampler[0], loop.sampler[1].turn) if loop.sampler is not None else (None, None)
        learned = DataLoop(
            batches=loop.batches, steps=steps, complete=complete, kinds=loop.kinds, heads=tuple(loop.heads),
            sampler=sampler, passed=passed,
        )  # fmt: skip
        self.box.end(loop.event, learned)

    # -- where they are made

    def _loader_made(self, _none: Any, loader: Any, *_: Any, **__: Any) -> None:
        number = self._made(loader)[0]
        if 0 <= number < MADE:
            self.emit(LoaderMade(number=number, class_name=_name(loader)))

    def _sampler_made(self, _none: Any, sampler: Any, *_: Any, **__: Any) -> None:
        number = self._made(sampler)[0]
        if 0 <= number < MADE:
            held = own_attributes(sampler)
            settings = {
                name: _plain(held.get(name)) for name in ("rank", "num_replicas", "seed", "shuffle", "drop_last")
            }
            self.emit(SamplerMade(number=number, class_name=_name(sampler), **settings))

    # -- samplers

    def _epoch_set(self, sampler: Any, epoch: Any = None, *_: Any) -> None:
        passes = self._samplers(sampler)[1]
        passes.told += 1
        passes.epoch = _plain(epoch)

    def _pass_begins(self, _indices: Any, sampler: Any) -> None:
        number, passes, _ = self._samplers(sampler)
        passes.turn += 1
        if number < 0 or passes.turn > PASSES_EACH or self._pass_count >= PASSES:
            return
        self._pass_count += 1
        held = own_attributes(sampler)
        dataset = held.get("dataset")
        length = _length(dataset)  # it has just been asked for, by the sampler
        names = ("epoch", "shuffle", "seed", "rank", "num_replicas", "drop_last", "num_samples")
        self.box.emit(
            SamplerPass(
                sampler=number,
                made=self._made.number(sampler),
                turn=passes.turn,
                class_name=_name(sampler),
                own=_is_own(sampler),
                dataset=self._dataset(dataset, length),
                head=dataset_fingerprint.head(dataset),
                length=length,
                told=passes.told,
                set_epoch=passes.epoch,
                site=place(),
                **{name: _plain(held.get(name)) for name in names},
            )
        )

    # -- loaders and data sets

    def _describe_loader(self, number: int, loader: Any) -> None:
        if not 0 <= number < LOADERS:
            return
        held = own_attributes(loader)
        sampler, own = _sampler_of(held)
        batches = held.get("batch_sampler")
        distributed = isinstance(sampler, DistributedSampler)
        dataset, context = held.get("dataset"), held.get("_DataLoader__multiprocessing_context")
        iterable = isinstance(dataset, IterableDataset)
        known = not iterable and not own and (type(sampler) in _OWN_LENGTH or (distributed and not _is_own(sampler)))
        names = ("batch_size", "drop_last", "num_workers", "timeout")
        self.box.emit(
            LoaderSeen(
                number=number,
                made=self._made.number(loader),
                class_name=_name(loader),
                kind="iterable" if iterable else "map",
                # These samplers ask for the length themselves; of others nobody may have.
                dataset=self._dataset(dataset, _length(dataset) if known else None),
                sampler=_name(sampler),
                own=own or not (type(sampler) in _OWN_LENGTH or distributed),
                distributed=self._samplers(sampler)[0] if distributed else None,
                length=_length(sampler if batches is None else batches) if known else None,
                generator=_seed(getattr(sampler, "generator", None) if type(sampler) in _DRAWING else None),
                context=type(context).__name__ if context is not None else "",
                site=place(),
                **{name: _plain(held.get(name)) for name in names},
            )
        )

    def _dataset(self, dataset: Any, samples: int | None) -> int:
        """Its number; what it holds is recorded when it is seen for the first time."""
        number, told, _ = self._datasets(dataset)
        if not told and 0 <= number < DATASETS:
            told.append(True)
            self.box.emit(dataset_fingerprint.describe(dataset, self._number_of, samples))
        return number

    def _number_of(self, dataset: Any) -> int:
        return self._datasets(dataset)[0]

    def _joined(self, join: Any) -> None:
        enabled = own_attributes(join).get("_enable")
        self.emit(JoinEntered(enable=enabled is not False))


def _sampler_of(loader: dict[str, Any]) -> tuple[Any, bool]:
    """What chooses the samples, and whether it is used in another way than torch's."""
    batches = loader.get("batch_sampler")
    if batches is None:
        return loader.get("sampler"), False
    return own_attributes(batches).get("sampler"), type(batches) is not BatchSampler


def _is_own(sampler: Any) -> bool:
    """Whether a sub-class of DistributedSampler chooses in its own way."""
    kind = type(sampler)
    return kind.__iter__ is not DistributedSampler.__iter__ or kind.__len__ is not DistributedSampler.__len__


def _state(sampler: Any) -> str:
    """What the order of a shuffling sampler follows from, as a digest; empty where there is none."""
    if type(sampler) not in _DRAWING:
        return ""
    generator = own_attributes(sampler).get("generator")
    if generator is None and torch.get_default_device().type == "cpu":
        generator = torch.default_generator
    if type(generator) is not torch.Generator or generator.device.type != "cpu":
        return ""
    return dataset_fingerprint.digest(generator.get_state())


def _seed(generator: Any) -> int | None:
    return generator.initial_seed() if type(generator) is torch.Generator else None


def _length(thing: Any) -> int | None:
    """Its length, for which torch asks it too; it may be of the user's making, and raise."""
    try:
        return len(thing)
    except Exception:
        return None


def _plain(value: Any) -> Any:
    if value is None or type(value) in (int, float, bool):
        return value
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return value.item() if not getattr(value, "shape", ()) else None
    return f"<{type(value).__name__}>"[:80]


def _name(thing: Any) -> str:
    kind = type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"[:120]
