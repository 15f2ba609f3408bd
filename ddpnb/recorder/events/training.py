"""Events of a training script outside of collectives.

Checkpoints, communication hooks, conversions, unused parameters: their lines and ranks explain a later
divergence.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ddpnb.recorder.events.bindings import homes_of_manual_seed
from ddpnb.recorder.events.hooks import Hooks
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.stacks.user_frames import called_by_user, is_torch_file
from ddpnb.recording.events.models import (
    AttributeOnWrapper,
    CheckpointRead,
    CheckpointSaved,
    CommHook,
    LoadFailed,
    ParametersIgnored,
    RngRestored,
    StateLoaded,
    SyncBatchNormConverted,
)
from ddpnb.recording.events.runs import ProcessEnds, SeedSet
from ddpnb.texts import shortened

_KEYS = 40
_STATE_BYTES = (torch.default_generator.get_state().numel(), 16)  # of a generator on the CPU, and on a GPU
_SYNC = "require_backward_grad_sync"
_PYTHON_STATE = len(random.getstate()[1])


class Training(Hooks):
    """Events of a training script."""

    def __init__(self, box: BlackBox, unsynced: Callable[[Any], None] = lambda _: None) -> None:
        super().__init__(box)
        self._unsynced = unsynced  # called with a wrapped model whose synchronisation the program turns off
        self._known: set[str] = {"training"}

    def new_run(self) -> None:
        super().new_run()
        self._known = {"training"}

    def install(self) -> None:
        self.after(DistributedDataParallel, "register_comm_hook", self._comm_hook)
        self.after(DistributedDataParallel, "_register_builtin_comm_hook", self._builtin_hook)
        self._after_classmethod(torch.nn.SyncBatchNorm, "convert_sync_batchnorm", self._converted)
        self.after(DistributedDataParallel, "_set_params_and_buffers_to_ignore_for_model", self._ignored)
        for owner in homes_of_manual_seed():
            self.before(owner, "manual_seed", self._seeded)
        self.before(torch.nn.Module, "load_state_dict", self._model_loaded)
        self.before(Optimizer, "load_state_dict", self._state_loaded("optimizer"))
        self.before(torch.amp.GradScaler, "load_state_dict", self._state_loaded("scaler"))
        restored, ends = RngRestored(), ProcessEnds()
        for owner in (torch.random, torch.cuda):
            self.before(owner, "set_rng_state", lambda *_, **__: self.emit(restored))
        self.before(random, "setstate", lambda *_, **__: self.emit(restored))
        self.before(torch, "save", self._saved)
        self.after(torch, "load", self._loaded)
        self.failing(torch, "load", self._not_loaded)
        self.failing(torch.nn.Module, "load_state_dict", self._not_loaded)
        self.before(DistributedDataParallel, "__setattr__", self._attribute)
        self.before(os, "_exit", lambda *_, **__: self.emit(ends))
        self.before(os, "abort", lambda *_, **__: self.emit(ends))
        self.before(os, "kill", self._killed)

    def _after_classmethod(self, owner: Any, name: str, look: Callable[..., None]) -> None:
        original = owner.__dict__[name]
        guarded, plain, inside = self.guarded(look), original.__func__, []

        def watched(cls: Any, *args: Any, **kwargs: Any) -> Any:
            outermost = not inside  # it calls itself for every child
            inside.append(True)
            try:
                result = plain(cls, *args, **kwargs)
            finally:
                inside.pop()
            if outermost:
                guarded(*args, **kwargs)
            return result

        setattr(owner, name, classmethod(watched))
        self.on_removal(lambda: setattr(owner, name, original))

    def _ignored(self, _none: Any, module: Any, params_and_buffers_to_ignore: Any = ()) -> None:  # noqa: ARG002
        names = params_and_buffers_to_ignore
        told = [str(name)[:100] for name in names] if isinstance(names, (list, tuple, set, frozenset)) else []
        self.emit(ParametersIgnored(names=tuple(sorted(told)[:20]), count=len(told)))

    def _seeded(self, seed: Any) -> None:
        """torch and libraries set it as well: only what the script itself asks for is recorded."""
        if type(seed) is int and called_by_user(2):
            self.emit(SeedSet(seed=seed))

    def _attribute(self, ddp: Any, name: str, value: Any) -> None:
        if name == _SYNC:
            if not value and not is_torch_file(sys._getframe(2).f_code.co_filename):  # no_sync() sets it too
                self._unsynced(ddp)
            return
        if name in self._known:
            return
        # The watcher of the call lies between; the wrapper sets attributes of its own all the time.
        self._known.add(name)
        if is_torch_file(sys._getframe(2).f_code.co_filename):
            return
        module = ddp.__dict__.get("_modules", {}).get("module")
        if module is not None and name not in ddp.__dict__ and name != "module":
            parts = (module.__dict__, module._parameters, module._buffers, module._modules)
            if any(name in part for part in parts):
                self.emit(AttributeOnWrapper(name=name[:100]))

    def _comm_hook(self, _none: Any, _ddp: Any, state: Any = None, hook: Any = None) -> None:
        settings = {**_bound(hook), **_own(state)}
        self.emit(CommHook(hook=_name_of(hook), state_class=type(state).__name__, settings=settings))

    def resumed(self, ddp: Any) -> None:
        """A wrapper of an earlier run is used again, with its hooks."""
        hooks: Any = getattr(ddp, "_comm_hooks", ())
        for hook, state in list(hooks):
            self._comm_hook(None, ddp, state, hook)

    def _builtin_hook(self, _none: Any, _ddp: Any, comm_hook_type: Any = None) -> None:
        self.emit(CommHook(hook=str(comm_hook_type)))

    def _converted(self, module: Any = None, *_args: Any, **_kwargs: Any) -> None:
        if not isinstance(module, torch.nn.Module):
            return
        wrapped = isinstance(module, DistributedDataParallel)
        layers = sum(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in module.modules())
        if layers and (wrapped or list(module.children())):
            self.emit(SyncBatchNormConverted(wrapped=wrapped, layers=layers))

    def _model_loaded(self, module: Any, state_dict: Any = None, *args: Any, **kwargs: Any) -> None:
        wrapped = isinstance(module, DistributedDataParallel)
        keys = tuple(str(key)[:100] for key in list(state_dict)[:4]) if hasattr(state_dict, "keys") else ()
        load = StateLoaded(what="model", class_name=type(module).__name__, wrapped=wrapped, keys=keys)
        if not (args[0] if args else kwargs.get("strict", True)) and hasattr(state_dict, "keys"):
            own = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
            load = replace(load, matched=sum(key in own for key in state_dict), given=len(state_dict))
        self.emit(load)

    def _state_loaded(self, what: str) -> Callable[..., None]:
        def look(one: Any, *_args: Any, **_kwargs: Any) -> None:
            self.emit(StateLoaded(what=what, class_name=type(one).__name__))

        return look

    def _killed(self, pid: int, signal: int) -> None:
        if pid in (0, os.getpid()) and signal:  # it kills itself: no stack will show afterwards where
            self.emit(ProcessEnds(signal=int(signal)))

    def _saved(self, obj: Any, f: Any = None, *_args: Any, **_kwargs: Any) -> None:
        self.emit(CheckpointSaved(path=_path(f), keys=_keys(obj)))

    def _loaded(self, value: Any, f: Any = None, *_args: Any, **_kwargs: Any) -> None:
        self.emit(
            CheckpointRead(path=_path(f), keys=_keys(value), generators=_generators(value), numbers=_numbers(value))
        )

    def _not_loaded(self, error: Exception, *_: Any, **__: Any) -> None:
        """A load failed; the script may catch the exception and continue."""
        self.emit(LoadFailed(error=shortened(f"{type(error).__name__}: {error}", 300)))


def _name_of(hook: Any) -> str:
    name = getattr(hook, "__qualname__", None) or type(hook).__qualname__
    return f"{getattr(hook, '__module__', '')}.{name}"[:200]


def _bound(hook: Any) -> dict[str, str]:
    """The plain values that a function carries with it: its closure's, or those of a partial."""
    code, cells = getattr(hook, "__code__", None), getattr(hook, "__closure__", None) or ()
    found: dict[str, Any] = dict(getattr(hook, "keywords", None) or {}) if type(hook) is functools.partial else {}
    for name, cell in zip(getattr(code, "co_freevars", ()), cells, strict=False):
        with contextlib.suppress(ValueError):  # an empty cell
            found[name] = cell.cell_contents
    return _plain(found)


def _own(state: Any) -> dict[str, str]:
    return _plain(vars(state)) if hasattr(type(state), "__dict__") and hasattr(state, "__dict__") else {}


def _plain(values: dict[str, Any]) -> dict[str, str]:
    kinds = (bool, int, float, str, torch.dtype)
    return {str(k)[:40]: str(v)[:60] for k, v in list(values.items())[:_KEYS] if type(v) in kinds}


def _path(file: Any) -> str:
    return os.path.abspath(os.fspath(file))[:400] if isinstance(file, (str, os.PathLike)) else type(file).__name__


def _keys(value: Any) -> tuple[str, ...]:
    return tuple(str(key)[:60] for key in list(value)[:_KEYS]) if type(value) is dict else ()


def _generators(value: Any) -> tuple[str, ...]:
    """The keys under which a checkpoint holds states of random generators, known by their form; also one level deeper."""
    if type(value) is not dict:
        return ()

    def holds(one: Any) -> bool:
        parts = one.values() if type(one) is dict else one if type(one) is list else ()
        return _is_generator(one) or any(map(_is_generator, list(parts)[:_KEYS]))

    return tuple(str(key)[:60] for key, one in list(value.items())[:_KEYS] if holds(one))


def _is_generator(state: Any) -> bool:
    """Whether this is a state of a generator of torch, Python or NumPy."""
    if type(state) is torch.Tensor:
        return state.dtype is torch.uint8 and state.dim() == 1 and len(state) in _STATE_BYTES
    if type(state) is dict:
        return "bit_generator" in state
    if type(state) is not tuple or len(state) < 3:
        return False
    return state[0] == "MT19937" or (type(state[1]) is tuple and len(state[1]) == _PYTHON_STATE)


def _numbers(value: Any) -> dict[str, int]:
    """The whole numbers of a checkpoint: its epoch, its step, its place in the data."""
    if type(value) is not dict:
        return {}
    found = [(str(key)[:60], one) for key, one in list(value.items())[:_KEYS] if type(one) is int]
    return dict(found[:20])
